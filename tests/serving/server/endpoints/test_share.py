"""The share of requests that goes to a canary."""

import pytest

from penstock.serving.server.endpoints.share import Share


@pytest.mark.parametrize(("share", "taken"), [(0.0, []), (0.25, [3, 7]), (0.5, [1, 3, 5, 7]), (1.0, list(range(8)))])
def test_a_share_is_taken_evenly(share: float, taken: list[int]) -> None:
    found = Share(share)
    assert [number for number in range(8) if found.takes()] == taken


@pytest.mark.parametrize("share", [0.0001, 0.1, 0.3, 0.7, 0.999])
def test_of_many_the_share_is_taken(share: float) -> None:
    found = Share(share)
    assert sum(found.takes() for _ in range(10_000)) == pytest.approx(10_000 * share, abs=1)
