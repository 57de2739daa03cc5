"""What is judged of a soak of a server. Nothing is served here."""

from benchmarks.soak.serving import left_in

PAGE = """# TYPE penstock_connections gauge
penstock_connections {connections}
penstock_sessions{{policy="policy",version="1"}} 2.0
penstock_sessions_expired_total{{policy="policy"}} 40.0
penstock_queue_rows{{policy="policy",version="1"}} 1.0
"""


def test_a_connection_that_stays_open_is_left_and_the_one_that_reads_the_page_is_not() -> None:
    assert left_in(PAGE.format(connections="1.0")) == 3.0
    assert left_in(PAGE.format(connections="4.0")) == 6.0
