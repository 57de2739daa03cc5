"""Replicas: with what a life of theirs begins."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from penstock.algorithm import AlgorithmSpec
from penstock.algorithm.first_state import first_state
from penstock.algorithms.ppo import spec as ppo
from penstock.errors import CheckpointError
from penstock.memory.segment import Segment
from penstock.nodes.learner import ReplicaNode, StreamReplicaNode
from penstock.planning import plan
from penstock.saved_runs.checkpoints import save_checkpoint
from penstock.topologies import off_policy, on_policy
from penstock.types import Arrays, Spaces
from penstock.updates.settings import UpdaterSettings
from penstock.wiring.edges import SUPERVISOR, Wiring
from penstock.wiring.ports import NodePorts
from tests.planned import prepared

SMALL = {"learners": 2, "num_workers": 2, "num_envs": 4, "backend": "fused"}
GONE = Path("update-00000003")
"""The checkpoint from which the run was resumed. It has made room for later ones."""


class Run:
    """Two learners; one of them is a replica."""

    def __init__(self, topology: ModuleType, **settings: object) -> None:
        program = topology.build(plan(prepared(**SMALL, **settings), Path("run"), quiet=True))
        self._node = program.node("learner.1")
        self._wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
        self._segment = Segment.create(self._wiring.nbytes, "test")
        self._wiring.attach(self._segment.bytes)

    def close(self) -> None:
        self._segment.close()

    def form(self) -> None:
        """Both learners form a team, and the replica dies."""
        ends = [self._wiring.rounds("gradients", name) for name in ("learner", "learner.1")]
        for end in ends:
            end.join(anew=False)
        for end in ends:
            end.send([], 1.0)
        ends[1].remove()

    def next_life(self, checkpoint: Path = GONE) -> bool:
        """The replica begins anew. True if it asks the other learner for its state."""
        of_stream = self._node.kind == "stream_replica"
        node = (StreamReplicaNode if of_stream else ReplicaNode)(replace(self._node.settings, checkpoint=checkpoint))
        # One of a table waits while it is opened, but not in a run that ends.
        self._wiring.counters.set(SUPERVISOR, "stopping", int(not of_stream))
        node.open(NodePorts(self._wiring, "learner.1", self._node.group, 2, (1,)))
        if of_stream:
            node.step()
        return self._wiring.rounds("gradients", "learner").newcomer_waits()

    def members(self) -> list[int]:
        """The learners of the team."""
        return self._wiring.rounds("gradients", "learner").members()

    def state(self) -> Arrays:
        """The first state of a table's learner."""
        steps = self._node.settings.steps
        return first_state(steps.initial, *of(steps.updater))


@pytest.fixture(params=["stream", "table"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    found = Run(on_policy) if request.param == "stream" else Run(off_policy, algo="dqn", mini_batch_size=8)
    yield found
    found.close()


def test_a_next_life_needs_no_checkpoint_once_there_is_a_team(run: Run) -> None:
    run.form()
    assert run.next_life()


def test_a_learner_that_forms_the_team_needs_the_checkpoint(run: Run) -> None:
    with pytest.raises(CheckpointError, match="it does not exist"):
        run.next_life()


def test_a_learner_forms_the_team_with_a_later_checkpoint_if_the_first_one_is_gone(tmp_path: Path) -> None:
    """While the table holds too few rows, the run goes on without gradient steps, and writes checkpoints."""
    run = Run(off_policy, algo="dqn", mini_batch_size=8)
    facts = {"env": "CartPole-v1", "algorithm": "dqn", "spaces": "Box"}
    save_checkpoint(tmp_path, run.state(), {**facts, "update": 9, "steps": 90})
    assert not run.next_life(tmp_path / "checkpoints" / GONE)
    assert run.members() == [1]
    run.close()


def of(updater: UpdaterSettings) -> tuple[AlgorithmSpec, Spaces, object, int]:
    """What `first_state` takes beside the name of the algorithm's function."""
    return updater.spec, updater.spaces, updater.config, updater.seed


def networks_alone(spaces: object, config: object, seed: int) -> Arrays:
    """The first state of an algorithm that leaves out what begins at zero."""
    return {
        name: values for name, values in ppo.init_state(spaces, config, seed).items() if name in {"actor", "critic"}
    }


def test_arrays_that_an_algorithm_leaves_out_begin_at_zero() -> None:
    run = Run(on_policy)
    settings = run._node.settings
    updater = settings.epochs.updater
    whole = first_state(settings.initial, *of(updater))
    found = first_state(f"{__name__}:networks_alone", *of(updater))
    assert {name: values.tobytes() for name, values in found.items()} == {
        name: values.tobytes() for name, values in whole.items()
    }
    node = StreamReplicaNode(replace(settings, initial=f"{__name__}:networks_alone"))
    node.open(NodePorts(run._wiring, "learner.1", run._node.group, 1))
    node.step()
    assert run._wiring.rounds("gradients", "learner").members() == [1]
    run.close()
