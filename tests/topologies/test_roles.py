"""Nodes know roles, not names: two policies, each with edges of its own, train in one program."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np

from penstock.planning import plan
from penstock.processes.starts import Processes
from penstock.program.graph import NodeSpec, Program
from penstock.runtime import inline
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.saved_runs.run_folder import RunFolder
from penstock.topologies import on_policy
from tests.planned import prepared

SMALL = {"num_envs": 2, "num_workers": 1, "num_steps": 16, "timesteps": 128, "epochs": 1, "runtime": "inline"}


def program(folder: Path, env: str) -> Program:
    planned = prepared(**SMALL, env=env)
    RunFolder(folder).make()
    return on_policy.build(plan(planned, folder, quiet=True))


def renamed(of: Program, prefix: str) -> Program:
    """The same program, with ``prefix`` before the name of every node and edge."""
    named = {end.name for end in (*of.nodes, *of.edges)}

    def new(value):
        """``value`` with new names for nodes and edges, in edges as deep as they stand."""
        if isinstance(value, str):
            return prefix + value if value in named else value
        if isinstance(value, tuple):
            return tuple(map(new, value))
        if is_dataclass(value) and not isinstance(value, type):
            inner = {field.name: getattr(value, field.name) for field in fields(value)}
            return replace(value, **{name: part for name, part in map(renew, inner.items()) if part is not inner[name]})
        return value

    def renew(item):
        # Arrays, settings and kinds of nodes keep their own names.
        return item if item[0] in {"arrays", "settings", "kind"} else (item[0], new(item[1]))

    roles = tuple((edge.name, prefix + edge.name) for edge in of.edges)

    def node(spec: NodeSpec) -> NodeSpec:
        # The action log of a node is asked for by the node's new name.
        own = tuple((f"actions.{prefix}{name.removeprefix('actions.')}", edge) for name, edge in roles)
        return replace(spec, name=prefix + spec.name, group=prefix + spec.group, edges=(*roles, *own))

    ends = tuple(prefix + name for name in of.ends_with)
    return replace(of, nodes=tuple(map(node, of.nodes)), edges=tuple(map(new, of.edges)), ends_with=ends)


def launched(of: Program) -> None:
    with Processes() as processes:
        inline.launch(of, processes)


def learned(folder: Path) -> dict[str, np.ndarray]:
    arrays = load_checkpoint(find_checkpoint(folder)).arrays
    return {name: values for name, values in arrays.items() if not name.startswith(("elapsed", "consumed"))}


def test_two_policies_of_one_program_learn_as_each_does_alone(tmp_path) -> None:
    envs = {"a": "CartPole-v1", "b": "Pendulum-v1"}
    for name, env in envs.items():
        launched(program(tmp_path / f"alone-{name}", env))
    one, two = (renamed(program(tmp_path / name, env), f"{name}.") for name, env in envs.items())
    both = replace(
        one, nodes=one.nodes + two.nodes, edges=one.edges + two.edges, ends_with=one.ends_with + two.ends_with
    )
    launched(both)
    for name in envs:
        alone, beside = learned(tmp_path / f"alone-{name}"), learned(tmp_path / name)
        assert alone.keys() == beside.keys()
        assert int(beside["steps"]) == 128
        for part, values in alone.items():
            assert np.array_equal(values, beside[part]), part
