"""Reading a peer's output, and the figures from it. No peer is started here."""

import pytest

from benchmarks import serve_peers
from benchmarks.peers.install import HERE
from benchmarks.peers.run import parse
from benchmarks.throughput import OURS, SAMPLE_FACTORY, bars, sb3


def test_the_result_among_other_lines() -> None:
    assert parse('[info] starting\nRESULT {"steps_per_s": 12.5}\n[info] done\n') == {"steps_per_s": 12.5}


def test_no_result() -> None:
    with pytest.raises(ValueError, match="no line RESULT in 'killed'"):
        parse("killed")


@pytest.mark.parametrize("peer", ["sb3", "sample_factory"])
def test_a_peer_has_a_script_and_its_versions(peer: str) -> None:
    assert (HERE / f"{peer}_ppo.py").exists()
    lines = (HERE / f"requirements-{peer}.txt").read_text().splitlines()
    assert all("==" in line for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("peer", sorted({one.peer for one in serve_peers.CONTESTANTS if one.peer is not None}))
def test_a_peer_that_serves_has_a_script_and_its_versions(peer: str) -> None:
    assert (HERE / f"{peer}_serve.py").exists()
    assert all("==" in line for line in serve_peers.versions()[peer])


def test_ray_serve_must_be_left_further_behind_than_the_others() -> None:
    def figures(rate: float) -> serve_peers.Figures:
        return serve_peers.Figures(rate, 1.0, 1.0, 0.0, 1.0, 1.0)

    rates = {one.name: 400.0 for one in serve_peers.CONTESTANTS} | {"penstock serve": 1600.0}
    found = {("http, 64 clients", name): figures(rate) for name, rate in rates.items()}
    # 1600 / 400 = 4: enough beside all but Ray Serve, which has to be 5 times as slow.
    assert {bar.value for bar in serve_peers.bars_of(found)} == {4.0}
    assert [bar.name for bar in serve_peers.bars_of(found) if not bar.holds] == ["requests/s beside Ray Serve"]


def test_each_of_ours_beside_its_peer() -> None:
    python, vector, pool = OURS
    ratios = bars({sb3(1): 10.0, sb3(2): 20.0, SAMPLE_FACTORY: 50.0, python: 100.0, vector: 130.0, pool: 200.0})
    # 100 / 20, 130 / 20, 200 / 50; the better of one and two threads counts.
    assert [(bar.value, bar.holds) for bar in ratios] == [(5.0, True), (6.5, False), (4.0, True)]
