"""The environment nodes of a host ask the policy nodes there, and collect the same rollouts as by policies in place.

All nodes of the host run in this process, one after the other.
"""

from pathlib import Path

import numpy as np
import pytest

from penstock.cluster.cut import RELAY, host_program, own_stream
from penstock.planning import plan
from penstock.registry import load
from penstock.scheduler.loop import Loop, Placed
from penstock.topologies import off_policy, on_policy
from penstock.types import Arrays
from penstock.wiring.edges import node_class
from penstock.wiring.ports import NodePorts
from tests.cluster.handing import wired
from tests.planned import prepared

ENVS = ("env.0", "env.1")
SIZES = {"num_workers": 2, "num_envs": 4, "num_steps": 30, "inference": "native"}
# Their last observations are valued, in the middle of a rollout.
TRUNCATED = {"env": "tests.environments:ClockEnv", "mini_batch_size": 60}
MEMORY = {"env": "tests.environments:BlinkForeverEnv", "model": "lstm", "memory_size": 8, "hidden_sizes": (8,)}
# A table keeps single frames, so stacks travel beside the question.
FRAMES = {"env": "tests.environments:make_film", "algo": "dqn", "hidden_sizes": (8, 8), "min_rows": 60}


class NoBell:
    """A bell that never sleeps: nobody would ring it."""

    def word(self) -> int:
        return 0

    def wait(self, seen: int, timeout_s: float) -> None: ...


def first_rollouts(pattern, **settings: object) -> dict[str, Arrays]:
    """The rollout that each environment node of a host hands on, with the first parameters of the run."""
    of = plan(prepared(**{**SIZES, **settings}), Path("run"), quiet=True)
    program = host_program(pattern.build(of))
    wiring = wired(program)
    state = load(of.learning.initial)(of.spaces, of.learning.algorithm_config, of.run.seed)
    wiring.board("policy").publish({part.name: state[part.name] for part in of.learning.spec.published()}, 0)
    placed: list[Placed] = []
    for number, spec in enumerate((node for node in program.nodes if node.name != RELAY), start=1):
        node, ports = (
            node_class(spec.kind)(spec.settings),
            NodePorts(wiring, spec.name, spec.group, number, edges=spec.edges),
        )
        node.open(ports)
        placed.append(Placed(node, ports))
    streams = {name: wiring.stream(own_stream("rollouts", name)) for name in ENVS}
    Loop(placed, NoBell(), lambda: all(stream.ready() for stream in streams.values())).run()
    for node, _ in placed:
        node.close()
    return {name: {field: values.copy() for field, values in streams[name].slot(0).items()} for name in ENVS}


@pytest.mark.parametrize(
    ("pattern", "settings"),
    [
        (on_policy, TRUNCATED),
        (on_policy, {**TRUNCATED, "policy_nodes": 2}),
        (on_policy, MEMORY),
        (off_policy, FRAMES),
    ],
    ids=["truncated episodes", "two policy nodes", "memory", "stacked frames"],
)
def test_rollouts_of_a_host_do_not_depend_on_where_the_policy_runs(pattern, settings: dict[str, object]) -> None:
    of_nodes = first_rollouts(pattern, **settings, policy_placement="node")
    in_place = first_rollouts(pattern, **{**settings, "policy_nodes": 1}, policy_placement="env")
    for name in ENVS:
        assert (in_place[name]["policy_version"][:-1] == 0).all()
        for field, values in in_place[name].items():
            np.testing.assert_array_equal(of_nodes[name][field], values, err_msg=f"{field} of {name}")
    # They are the rollouts of different lanes.
    assert [int(rollout["first_lane"]) for rollout in of_nodes.values()] == [0, 2]
