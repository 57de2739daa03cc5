"""Doubles: fake games, policies and learners, so that each part of a training from games can be tried alone.

- `FakeGame` plays without a game: it sends scripted observations and rewards, and remembers the actions.
- `FakePolicy` acts without a network: by a function.
- `FakeLearner` learns nothing: it keeps the rollouts that it is given.
- `rehearse` puts an agent between them: real sockets and sessions, no run.
- `FakeGodot` is a game of Godot RL Agents without Godot.
"""

from penstock.doubles.godot import FakeGodot
from penstock.doubles.rehearsal import FakeGame, FakeLearner, FakePolicy, Rehearsal, Script, rehearse

__all__ = ["FakeGame", "FakeGodot", "FakeLearner", "FakePolicy", "Rehearsal", "Script", "rehearse"]
