"""Doubles: fake games, policies and learners, so that each part of a training from games can be tried alone.

- `FakeGame` plays without a game: it sends scripted observations and rewards, and remembers the actions.
- `FakePolicy` acts without a network: by a function.
- `FakeLearner` learns nothing: it keeps the rollouts that it is given.
- `rehearse` puts an agent between them: real sockets and sessions, no run.
- `FakeGodot` is a game of Godot RL Agents without Godot, `FakeUnity` one of ML-Agents without Unity.
"""

from typing import TYPE_CHECKING, Any

from penstock.doubles.godot import FakeGodot
from penstock.doubles.rehearsal import FakeGame, FakeLearner, FakePolicy, Rehearsal, Script, rehearse

if TYPE_CHECKING:
    from penstock.doubles.mlagents import FakeUnity

__all__ = ["FakeGame", "FakeGodot", "FakeLearner", "FakePolicy", "FakeUnity", "Rehearsal", "Script", "rehearse"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a name stands for anything
    if name != "FakeUnity":
        raise AttributeError(f"module 'penstock.doubles' has no attribute {name!r}")
    # It needs gRPC, which the other doubles do without.
    from penstock.doubles.mlagents import FakeUnity  # noqa: PLC0415

    return FakeUnity
