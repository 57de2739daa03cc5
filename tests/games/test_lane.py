"""The lane of one session of a game."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.clients import GameClient
from penstock.doubles import FakeGame, FakePolicy, Script, rehearse
from penstock.nodes.env import EnvSettings
from tests.serving.server.harness import until


def test_a_long_rollout_goes_on_with_newer_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a newer policy whenever a lane asks for one: at the start of a rollout, and after every second step."""

    def newer(policy: FakePolicy) -> None:
        policy.version += 1

    def settings(**given: Any) -> EnvSettings:
        return replace(EnvSettings(**given), renew_every=2)

    monkeypatch.setattr(FakePolicy, "refresh", newer)
    monkeypatch.setattr("penstock.doubles.rehearsal.EnvSettings", settings)
    with rehearse("tests.games.agents:Plain", num_steps=6, num_envs=1) as stage, GameClient(stage.tcp, "g") as client:
        FakeGame(client).begin(Script([[float(t)] for t in range(13)], [1.0] * 12), 13)
        until(lambda: len(stage.learner.rollouts) == 2)
        versions = [rollout["policy_version"].reshape(-1)[:6].tolist() for rollout in stage.learner.rollouts]
    assert versions == [[1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6]]
