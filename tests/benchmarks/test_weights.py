"""The weights on links: their size, and what is judged. Namespaces are made by the benchmark only."""

from benchmarks.weights import HOSTS, RESOURCES, judged, weights_bytes


def test_a_version_has_about_ten_megabytes() -> None:
    # Two networks with layers of 3, 1100 and 1100 inputs; each number has four bytes.
    assert abs(weights_bytes() - 2 * 4 * (1100 * 1100 + 1100 * 6)) < 100_000


def test_the_links_of_the_acting_hosts_are_judged() -> None:
    launcher, *acting, deputy = RESOURCES
    assert ["acts" in host for host in acting] == [True] * HOSTS
    assert max(RESOURCES, key=lambda host: host["CPU"]) is deputy
    links = [5, 1_030, 1_020, 1_000, 9_999]
    assert [bar.holds for bar in judged(10, 100, links)] == [True, True]
    # One host has got each version twice, or half of them.
    for wrong, expected in ((2_000, [False, True]), (500, [True, False])):
        assert [bar.holds for bar in judged(10, 100, [*links[:2], wrong, *links[3:]])] == expected
    assert "acts" not in launcher
