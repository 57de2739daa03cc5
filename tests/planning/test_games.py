"""What a run settles if its environments are games."""

from penstock.config.schema import RunConfig
from penstock.planning.games import where


def test_an_address_of_ipv6_is_in_brackets() -> None:
    run = RunConfig(host="::1", port=8000, tcp_port=8001)
    assert where(run) == "http://[::1]:8000 and tcp://[::1]:8001"
