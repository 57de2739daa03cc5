"""The access log on a disk that is full."""

from penstock.serving.server.metrics.access_log import AccessLog


def test_a_full_disk_ends_nothing() -> None:
    log = AccessLog("/dev/full")
    log.add(protocol="http", peer="", what="GET /", status=200, seconds=0.0, size=0)
    log.flush()
    log.add(protocol="http", peer="", what="GET /", status=200, seconds=0.0, size=0)
    log.close()
    assert log._file.closed
