"""The numbers in last infos: what counts as one, of one lane and of all lanes together."""

import math
import tracemalloc

import numpy as np
import pytest

from penstock.envs.last_infos import LastInfos
from penstock.errors import BadDataError

NAN = math.nan


def read() -> LastInfos:
    return LastInfos(("won", "laps"), ("lane 10 of test", "lane 11 of test"))


@pytest.mark.parametrize(
    ("info", "numbers"),
    [
        ({"won": True, "laps": 3}, (1.0, 3.0)),
        ({"laps": np.float32(0.5), "won": np.bool_(False), "other": "text"}, (0.0, 0.5)),
        ({"won": np.array([1]), "laps": [2]}, (1.0, 2.0)),
        ({"won": None}, (NAN, NAN)),
        ({"won": math.inf, "laps": NAN}, (NAN, NAN)),
        ({}, (NAN, NAN)),
        (None, (NAN, NAN)),
    ],
)
def test_numbers_and_booleans_count_and_what_is_not_there_is_nan(info, numbers) -> None:
    np.testing.assert_array_equal(read().numbers(0, info), numbers)


@pytest.mark.parametrize("value", ["yes", [1, 2], [[1], [2, 3]], {"r": 1.0}])
def test_what_is_no_number_is_named_with_its_lane(value) -> None:
    says = r"^won in the last info of lane 11 of test is .*, which is no number; leave it out of --episode_metrics$"
    with pytest.raises(BadDataError, match=says):
        read().take(1, {"won": value})


def test_text_among_numbers_takes_no_memory_and_is_refused() -> None:
    tracemalloc.start()
    with pytest.raises(BadDataError, match="which is no number; leave it out"):
        read().take(1, {"won": ["A" * 100_000, *[0] * 400]})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # 401 texts of this width would take 160 MB.
    assert peak < 8e6


def test_of_all_lanes_together_each_takes_its_own_if_it_has_one() -> None:
    last = read()
    infos = {"won": np.array([False, True]), "laps": np.array([7, 0]), "_laps": np.array([True, False])}
    for lane in (0, 1):
        last.take_batch(lane, infos)
    assert last.ended[0] == (0.0, 7.0)
    np.testing.assert_array_equal(last.ended[1], (1.0, NAN))
    last.begin_step()
    assert not last.ended


def test_one_number_for_all_lanes_is_refused() -> None:
    with pytest.raises(BadDataError, match=r"^laps in the last info of lane 10 of test is 7, which is no number for"):
        read().take_batch(0, {"laps": 7})
