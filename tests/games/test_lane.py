"""The lane of one session of a game."""

from types import SimpleNamespace

import numpy as np

from penstock.games.lane import Lane


class NewerEachTime:
    """There is a newer version whenever it is asked for."""

    version = 1

    def refresh(self) -> None:
        self.version += 1

    def ask(self, handle: object, t: int, step: int) -> None:
        """Nobody answers here."""


def test_a_long_rollout_goes_on_with_newer_policies() -> None:
    versions = np.ones(6, np.int64)
    slot = SimpleNamespace(handle=None, arrays={"policy_version": versions})
    settings = SimpleNamespace(num_steps=6, renew_every=2)
    lane = SimpleNamespace(_t=0, _step=0, _settings=settings, _policy=NewerEachTime(), _current=lambda: slot)
    for t in range(6):
        lane._t = t
        Lane._ask(lane)  # type: ignore[arg-type]
    assert versions.tolist() == [1, 1, 2, 2, 3, 3]
