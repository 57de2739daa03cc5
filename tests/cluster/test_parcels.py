"""A slot that is carried to another machine arrives as it was, without the unused part of its side areas."""

import numpy as np
import pytest

from penstock.cluster.parcels import packed, unpack


def slot(finals: int, episodes: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(finals)
    return {
        "obs": draw.normal(size=(3, 2, 4)).astype(np.float32),
        "terminated": draw.integers(0, 2, (3, 2)).astype(bool),
        "final.obs": draw.normal(size=(4, 4)).astype(np.float32),
        "final_count": np.array(finals, np.int64),
        "final_t": draw.integers(0, 9, 4),
        "episode_count": np.array(episodes, np.int64),
        "episode_return": draw.normal(size=4),
        "shaped_return": draw.normal(size=4),
        "episode_metric.lap.time/s": draw.normal(size=4),
        "rollout": np.array(7, np.int64),
        "lane_position": draw.integers(0, 9, (2, 4)),
    }


@pytest.mark.parametrize(("finals", "episodes"), [(0, 0), (1, 3), (4, 4)])
def test_what_is_filled_arrives(finals: int, episodes: int) -> None:
    sent = slot(finals, episodes)
    arrived = {name: np.zeros_like(values) for name, values in sent.items()}
    unpack(packed(sent), arrived)
    for name, values in sent.items():
        count = {"final.obs": finals, "final_t": finals, "episode_return": episodes, "shaped_return": episodes}
        count["episode_metric.lap.time/s"] = episodes
        filled = slice(None, count.get(name)) if values.ndim else ...
        assert np.array_equal(arrived[name][filled], values[filled]), name


def test_a_parcel_has_no_more_bytes_than_are_filled() -> None:
    # Each last observation takes 16 bytes, and 8 for its row.
    assert len(packed(slot(4, 0))) - len(packed(slot(1, 0))) == 3 * (16 + 8)
    # Each episode takes 8 for its return, for that of own rewards and for its metric.
    assert len(packed(slot(0, 3))) - len(packed(slot(0, 0))) == 3 * (8 + 8 + 8)


@pytest.mark.parametrize("size", [-1, 1])
def test_a_parcel_of_another_size_is_refused(size: int) -> None:
    sent = slot(1, 1)
    parcel = packed(sent)
    wrong = parcel[:size] if size < 0 else np.append(parcel, np.uint8(0))
    with pytest.raises(ValueError, match="bytes for arrays of"):
        unpack(wrong, {name: np.zeros_like(values) for name, values in sent.items()})
