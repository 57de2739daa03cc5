"""What is read of a kept episode is within its spaces, or the file is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import BadDataError
from penstock.saved_runs.episodes import KeptEpisode, read_episode, write_episode
from penstock.types import ActionSpace, Box, Composite, Discrete, MultiDiscrete, Spaces

TURN = Box((1,), "float32", (-1.0,), (1.0,))
BUTTONS = MultiDiscrete((2, 3), (0, 1), (2,), "int64")
BOTH = Composite(((("turn",), TURN), (("gear",), Discrete(3, 1))))
WIDE = Box((1,), "float64", (), ())


def kept(folder: Path, action: Any, seen: Any = 3, wide: float = 0.0) -> Path:
    action = np.array([action])
    obs = {"obs.gear": np.array([seen, seen]), "obs.wide": np.full((2, 1), wide)}
    write_episode(folder, 1, KeptEpisode("g", obs, action, np.zeros(1, np.float32), True, vanished=False))
    return folder / "episode-00000001.npz"


def spaces(action: ActionSpace) -> Spaces:
    return Spaces((("obs.gear", Discrete(5, 2)), ("obs.wide", WIDE)), action)


@pytest.mark.parametrize(
    ("space", "action"),
    [(Discrete(3, -1), -1), (Discrete(3, -1), 1), (BUTTONS, [0, 1]), (BUTTONS, [1, 3]), (BOTH, [-1.0, 3.0])],
)
def test_actions_of_the_space_are_read(tmp_path, space, action) -> None:
    np.testing.assert_array_equal(read_episode(kept(tmp_path, action), spaces(space)).action, [action])


@pytest.mark.parametrize(
    ("space", "action", "says"),
    [
        (Discrete(3, -1), -2, "action -2 of step 0 is not within -1 to 1"),
        (Discrete(3, -1), 2, "action 2 of step 0 is not within -1 to 1"),
        (Discrete(2), 10**12, "action 1e.12 of step 0 is not within 0 to 1"),
        (BUTTONS, [0, 0], "action 0 of step 0 is not within 1 to 3"),
        (BUTTONS, [2, 1], "action 2 of step 0 is not within 0 to 1"),
        (BOTH, [-1.1, 1.0], "action -1.1 of step 0 is not within -1 to 1"),
        (BOTH, [0.0, 4.0], "action 4 of step 0 is not within 1 to 3"),
    ],
)
def test_actions_outside_of_the_space_are_refused(tmp_path, space, action, says: str) -> None:
    with pytest.raises(BadDataError, match=rf"episode-00000001\.npz: {says}"):
        read_episode(kept(tmp_path, action), spaces(space))


@pytest.mark.parametrize("seen", [1, 7, -5])
def test_observed_choices_outside_of_their_space_are_refused(tmp_path, seen: int) -> None:
    with pytest.raises(BadDataError, match=rf"obs\.gear {seen} of step 0 is not within 2 to 6"):
        read_episode(kept(tmp_path, 0, seen), spaces(Discrete(2)))


def test_numbers_that_no_float32_can_hold_are_refused(tmp_path) -> None:
    assert read_episode(kept(tmp_path, 0, wide=1e38), spaces(Discrete(2))).obs["obs.wide"][0, 0] == 1e38
    with pytest.raises(BadDataError, match=r"its obs\.wide holds NaN or infinity"):
        read_episode(kept(tmp_path, 0, wide=-1e39), spaces(Discrete(2)))


def test_a_damaged_file_is_named_wherever_the_damage_is(tmp_path) -> None:
    path = kept(tmp_path, 0)
    whole = path.read_bytes()
    said = []
    for at in range(len(whole)):
        for damaged in (whole[:at] + whole[at + 1 :], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            # Some bytes mean nothing, and the session and the truth values may be any.
            try:
                read_episode(path, spaces(Discrete(2)))
            except BadDataError as error:
                said.append(str(error))
    assert len(said) > len(whole)
    assert all("episode-00000001.npz" in text for text in said)
