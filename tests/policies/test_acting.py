"""LocalPolicy: its answers to an environment node, with backends that bind arrays and with others."""

from typing import ClassVar

import numpy as np
import pytest

from penstock.kernels.actions import environment_array, to_environment
from penstock.kernels.noise import generate
from penstock.memory.board import Board as BoardMemory
from penstock.memory.segment import Segment
from penstock.policies.acting import LocalPolicy, PolicySettings
from penstock.policies.exploration import Constant, Exploration, Falling, Ladder
from penstock.types import ArraySpec, BackendSpec, Box, Discrete, Spaces
from penstock.wiring.ends import BoardEnd
from tests.inference import reference

FIRST, LANES, STEPS, SEED = 2, 3, 4, 11
OBS = (("obs", Box((3,), "float32", (-1.0,), (1.0,))),)
CASES = {
    "squashed": (Box((1,), "float32", (-2.0,), (2.0,)), ()),
    "deterministic": (Box((1,), "float32", (0.0,), (4.0,)), ()),
    "values": (Discrete(2, 3), (ArraySpec("q", (2,), "float32"),)),
    "gaussian": (Box((1,), "float32", (-2.0,), (2.0,)), (ArraySpec("log_prob", (), "float32"),)),
}
BACKENDS = ["penstock.inference.native:build", "penstock.inference.onnx.backend:build"]


class Board:
    """A board with one version of the parameters."""

    def __init__(self, published):
        self.published = published

    def publication(self):
        return 1

    def read(self, into):
        for name, values in self.published.items():
            into[name][...] = values
        return 0


def asked(name, build, exploration, steps=(0, 1, 2)):
    """Ask for these steps. Returns the rows, the environment's actions, and a kernel's answer for whole arrays."""
    graph, (space, row) = reference.GRAPHS[name], CASES[name]
    published = reference.record(graph, np.random.default_rng(0))
    noise = graph.head.noise
    spaces = Spaces(OBS, space)
    settings = PolicySettings(BackendSpec(build, (graph,)), graph, spaces, row, SEED, exploration)
    policy = LocalPolicy(settings, Board(published), FIRST, LANES)
    specs = (*spaces.obs_specs(), spaces.action_spec(), *row)
    rows = {spec.name: np.zeros((STEPS, LANES, *spec.shape), spec.dtype) for spec in specs}
    rows["obs"][...] = np.random.default_rng(1).normal(size=rows["obs"].shape)
    policy.refresh()
    handle = policy.bind(rows)
    told = []
    for t, step in enumerate(steps):
        policy.ask(handle, t, step)
        assert policy.answered()
        told.append(policy.environment_action.copy())
    return rows, told, (graph, published, noise)


def expected(rows, what, t, step, explore):
    """The outputs for row t by the float64 reference."""
    graph, published, noise = what
    lanes = np.arange(FIRST, FIRST + LANES)
    return reference.act(graph, published, {"obs": rows["obs"][t]}, generate(noise, SEED, lanes, step), explore)


@pytest.mark.parametrize("build", BACKENDS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("explore", "scales"),
    [
        (Constant(), [[1.0] * 3] * 3),
        (Constant(0.25), [[0.25] * 3] * 3),
        # From 1 to 0.5 over the first half of 4 steps.
        (Falling(1.0, 0.5, 0.5), [[1.0] * 3, [0.75] * 3, [0.5] * 3]),
        # Lanes 2, 3, 4 of 5: 0.5^(1 + 4 i / 4).
        (Ladder(0.5, 4.0), [[0.125, 0.0625, 0.03125]] * 3),
    ],
)
def test_explore_is_of_the_lane_and_the_step(name, build, explore, scales):
    rows, told, what = asked(name, build, Exploration(explore, 0, 5, 4.0))
    space, row = CASES[name]
    for t, scale in enumerate(scales):
        wanted = expected(rows, what, t, t, np.array(scale, np.float32))
        for output in ("action", *(spec.name for spec in row)):
            np.testing.assert_allclose(rows[output][t], wanted[output], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(
            told[t], to_environment(rows["action"][t], space, environment_array(space, LANES))
        )


@pytest.mark.parametrize("build", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_the_first_actions_are_generated_and_the_other_outputs_are_the_policys(name, build):
    # 9 rows of 5 lanes: steps 0 and 1 are blind, step 2 is not.
    exploration = Exploration(Constant(), 9, 5, 100.0)
    rows, told, what = asked(name, build, exploration)
    space, row = CASES[name]
    lanes = np.arange(FIRST, FIRST + LANES)
    for t in range(3):
        wanted = expected(rows, what, t, t, np.ones(LANES, np.float32))
        for spec in row:
            np.testing.assert_allclose(rows[spec.name][t], wanted[spec.name], rtol=1e-5, atol=1e-5)
        if t < 2:
            wanted["action"] = np.zeros_like(rows["action"][t])
            exploration.generate(space, SEED, lanes, t, wanted["action"])
        np.testing.assert_allclose(rows["action"][t], wanted["action"], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(
            told[t], to_environment(rows["action"][t], space, environment_array(space, LANES))
        )


def test_steady_exploration_costs_no_call_beyond_the_kernels(monkeypatch):
    calls = []
    monkeypatch.setattr(Exploration, "scale", lambda *_: calls.append("scale") or np.ones(LANES, np.float32))
    monkeypatch.setattr(Exploration, "blind", lambda *_: calls.append("blind") or False)
    asked("squashed", BACKENDS[0], Exploration(Constant(), 0, 5, 100.0))
    assert calls == ["scale"]


@pytest.mark.parametrize("build", BACKENDS)
def test_it_sees_stacks_that_stand_beside_the_rows(build):
    graph, (space, row) = reference.GRAPHS["values"], CASES["values"]
    published = reference.record(graph, np.random.default_rng(0))
    stacks = (ArraySpec("obs", (3,), "float32"),)
    exploration = Exploration(Constant(), 0, 5, 4.0)
    spaces = Spaces(OBS, space)
    settings = PolicySettings(BackendSpec(build, (graph,)), graph, spaces, row, SEED, exploration, stacks)
    policy = LocalPolicy(settings, Board(published), FIRST, LANES)
    rows = {spec.name: np.zeros((STEPS, LANES, *spec.shape), spec.dtype) for spec in (spaces.action_spec(), *row)}
    rows["obs"] = np.zeros((STEPS, LANES), np.float32)  # a single frame, on which the policy cannot act
    policy.refresh()
    handle = policy.bind(rows)
    for t in range(2):
        policy.stacks["obs"][...] = np.random.default_rng(t).normal(size=(LANES, 3))
        policy.ask(handle, t, t)
        seen = {"obs": np.stack([policy.stacks["obs"]] * STEPS)}
        wanted = expected(seen, (graph, published, graph.head.noise), t, t, np.ones(LANES, np.float32))
        np.testing.assert_array_equal(rows["action"][t], wanted["action"])
        np.testing.assert_allclose(rows["q"][t], wanted["q"], rtol=1e-5, atol=1e-5)


class Loaded:
    """A backend that keeps what it loads."""

    found: ClassVar = []

    def load(self, published):
        self.found.append({name: values.copy() for name, values in published.items()})


def test_a_version_that_is_published_twice_is_loaded_twice():
    """A parameter server publishes the policy again once the gradient steps of the latest rollout are done."""
    graph, (space, row) = reference.GRAPHS["values"], CASES["values"]
    specs = graph.published()
    memory = BoardMemory(Segment.create(BoardMemory.required(specs), "test").bytes, specs)
    board = BoardEnd(memory, lambda: None, None)
    backend, exploration = BackendSpec(f"{__name__}:Loaded", ()), Exploration(Constant(), 0, 5, 4.0)
    policy = LocalPolicy(
        PolicySettings(backend, graph, Spaces(OBS, space), row, SEED, exploration), board, FIRST, LANES
    )
    policy.refresh()
    assert (policy.version, len(Loaded.found)) == (-1, 0)
    for count, seed in enumerate((0, 1), start=1):
        published = reference.record(graph, np.random.default_rng(seed))
        board.publish(published, 3)
        for _ in range(2):
            policy.refresh()
            assert (policy.version, len(Loaded.found)) == (3, count)
        assert all(np.array_equal(Loaded.found[-1][spec.name], published[spec.name]) for spec in specs)
