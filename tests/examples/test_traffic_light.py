"""The traffic light of ``examples/traffic_light``, with a double of SUMO: its package takes 450 MB."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "examples" / "traffic_light" / "traffic_light.py"
LINKS = ["top0A0_0", "right0A0_0", "bottom0A0_0", "left0A0_0"]


class FakeSumo:
    """A crossing with one lane a road. As many cars stand as the test says."""

    def __init__(self) -> None:
        self.standing = dict.fromkeys(("top0A0", "bottom0A0", "left0A0", "right0A0"), 0)
        self.log: list[tuple[float, str]] = []
        """Time and state of each change of the light."""
        self.time = 0.0
        self.starts: list[list[str]] = []
        self.closed = False
        self.trafficlight = SimpleNamespace(
            getIDList=lambda: ("A0",),
            getControlledLinks=lambda _: [[(link, "out", "via")] for link in LINKS],
            setRedYellowGreenState=lambda _, state: self.log.append((self.time, state)),
        )
        self.edge = SimpleNamespace(getLastStepHaltingNumber=lambda road: self.standing[road])
        self.simulation = SimpleNamespace(getTime=lambda: self.time)

    def simulationStep(self) -> None:
        self.time += 1.0

    def load(self, arguments: list[str]) -> None:
        self.starts.append(arguments)
        self.time = 0.0

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def world(tmp_path, monkeypatch) -> FakeSumo:
    found = FakeSumo()
    tool = tmp_path / "bin" / "netgenerate"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    sumo, traci = ModuleType("sumo"), ModuleType("traci")
    sumo.SUMO_HOME = str(tmp_path)
    traci.start = lambda command, **_: found.starts.append(command)
    traci.getConnection = lambda _: found
    traci.exceptions = SimpleNamespace(TraCIException=RuntimeError)
    monkeypatch.setitem(sys.modules, "sumo", sumo)
    monkeypatch.setitem(sys.modules, "traci", traci)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return found


@pytest.fixture
def env(world):
    spec = importlib.util.spec_from_file_location("traffic_light", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TrafficLight()


def test_a_change_takes_three_seconds_of_yellow(env, world) -> None:
    env.reset(seed=1)
    for action in (0, 1, 1, 0):
        env.step(action)
    assert world.log == [(0.0, "GrGr"), (5.0, "yryr"), (8.0, "rGrG"), (15.0, "ryry"), (18.0, "GrGr")]
    assert world.time == 20.0


def test_it_sees_and_pays_for_cars_that_stand(env, world) -> None:
    assert env.reset(seed=1)[0].tolist() == [0.0] * 6
    world.standing.update(top0A0=3, left0A0=10)
    seen, reward, terminated, truncated, _ = env.step(1)
    np.testing.assert_allclose(seen, [0.3, 0.0, 1.0, 0.0, 1.0, 5 / 60], rtol=1e-6)
    assert reward == pytest.approx(-1.3)
    assert not terminated
    assert not truncated
    assert [env.step(1)[3] for _ in range(119)] == [False] * 118 + [True]
    env.close()
    assert world.closed


def test_traffic_differs_from_episode_to_episode_and_is_that_of_its_seed(env, world) -> None:
    def shares(seed: int) -> list[str]:
        env.reset(seed=seed)
        routes = next(word for word in world.starts[-1] if word.endswith(".rou.xml"))
        return re.findall(r'probability="([0-9.]+)"', Path(routes).read_text())

    first, other, again = shares(1), shares(2), shares(1)
    assert first == again != other
    north, south, west, east = first
    assert (north, west) == (south, east)
    assert north != west
    assert len(world.starts) == 3
