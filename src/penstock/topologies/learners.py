"""The learners of a program: their names, nodes, settings and memory, whatever the topology."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.config.agreement import HANDED_ON, HOGWILD, Agreement
from penstock.errors import ConfigError
from penstock.nodes.learner import KeeperSettings
from penstock.nodes.learner.gradient_slot import vector_specs
from penstock.policies import Linear
from penstock.program.graph import Board, Edge, Minibatch, NodeSpec, SharedArrays, Stream
from penstock.program.plan import Plan
from penstock.program.rollout import rollout_specs
from penstock.topologies.env_nodes import env_names
from penstock.topologies.imports import slow_imports
from penstock.types import ArraySpec
from penstock.updates.settings import UpdaterSettings

__all__ = [
    "GRADIENTS_TEAM",
    "Rule",
    "activation_bytes",
    "follower_names",
    "gpu_of",
    "gradient_edges",
    "keeper_settings",
    "learner_imports",
    "learner_names",
    "learner_nodes",
    "part_rows",
    "pull_after",
    "required",
    "rollout_arrays",
    "rule_of",
    "stream_minibatch",
    "updater_settings",
]

GRADIENTS_TEAM = "penstock.gradient_exchange.gradients:build"
"""``module:build`` of the end of a learner that hands its gradients on."""
NUMBER_BYTES = 12
"""Bytes of a row's flat index and weight."""


def learner_names(count: int) -> tuple[str, ...]:
    """Names of the learners that step together. The first one is the keeper."""
    return ("learner", *(f"learner.{number}" for number in range(1, count)))


def learner_imports(plan: Plan) -> tuple[str, ...]:
    """Modules of a learner process that take seconds to import: torch and its compiler."""
    return () if plan.learning.backend.native else slow_imports(plan.run, plan.learning.backend.stream)


def learner_nodes(
    plan: Plan, names: Sequence[str], kinds: Sequence[str], settings: Sequence[object], memory: Minibatch
) -> tuple[NodeSpec, ...]:
    """Nodes that compute gradients, each in a process of its own. ``memory`` is what one of them needs."""
    return tuple(
        NodeSpec(
            name,
            kind,
            own,
            group=name,
            threads=plan.learner_threads,
            gpu=gpu_of(plan, number),
            minibatch=memory,
            imports=learner_imports(plan),
        )
        for number, (name, kind, own) in enumerate(zip(names, kinds, settings, strict=True))
    )


def gpu_of(plan: Plan, number: int) -> int | None:
    """`NodeSpec.gpu` of a learner: each takes the next one. A host of a cluster numbers its own learners anew."""
    return number if plan.run.device == "cuda" else None


def keeper_settings(plan: Plan) -> KeeperSettings:
    """Settings of the keeper."""
    return KeeperSettings(
        initial=plan.learning.initial,
        algorithm_config=plan.learning.algorithm_config,
        spec=plan.learning.spec,
        spaces=plan.spaces,
        run=plan.run,
        action_logs=tuple(f"actions.{env}" for env in env_names(plan)),
        checkpoint=plan.checkpoint,
        resumed_update=plan.resumed_update,
    )


def follower_names(count: int) -> tuple[str, ...]:
    """Names of the learners that hand their gradients on to node ``learner``."""
    return tuple(f"learner.{number}" for number in range(1, count + 1))


def gradient_edges(plan: Plan, slot: tuple[ArraySpec, ...], board: tuple[ArraySpec, ...]) -> tuple[Stream, Board]:
    """The edges between followers and the node that owns the parameters.

    Args:
        plan: of the run.
        slot: the gradients of one step of a follower, to be applied once.
        board: what the owner tells all followers: the parameters, and how far it is.
    """
    followers = follower_names(plan.run.learners)
    gradients = Stream("gradients", followers, ("learner",), slot, _gradients_waiting(plan), "wait")
    return gradients, Board("parameters", "learner", followers, board)


def _gradients_waiting(plan: Plan) -> int:
    """Slots of the stream of gradients: each learner fills one while the other waits."""
    return HANDED_ON * plan.run.learners


def pull_after(plan: Plan, pace: str) -> int:
    """With pace ``lag``: by how many gradient steps a learner's parameters may be behind before it takes newer ones.

    This is less than ``max_policy_lag``, because a gradient becomes older while it waits: the gradients before it are
    applied first, and each of them makes it one step older. With any other pace the result is 0.
    """
    return plan.run.max_policy_lag - _gradients_waiting(plan) if pace == "lag" else 0


class Rule(NamedTuple):
    """How learners that do not wait for each other hand on what they have learned."""

    team: str
    """``module:build`` of a learner's end."""
    owner: str | None
    """``module:build_owner`` of the end of the node that owns the state. ``None``: this node applies the gradients."""
    told: tuple[ArraySpec, ...]
    """Arrays of the state on board ``parameters``."""
    handed_on: tuple[ArraySpec, ...]
    """Specs of the arrays whose gradients are in a slot of stream ``gradients``."""
    max_gradient_lag: float
    edges: tuple[Edge, ...]


def rule_of(plan: Plan, agreed: Agreement) -> Rule:
    """The parts of a program in which these rules differ."""
    spec = plan.learning.spec
    if agreed.exchange != HOGWILD:
        shared = spec.shared()
        return Rule(GRADIENTS_TEAM, None, shared, shared, plan.run.max_policy_lag, ())
    vector, module = vector_specs(spec.state), "penstock.gradient_exchange.hogwild"
    told = tuple(part for part in spec.shared() if part.name == "progress")
    members = ("learner", *follower_names(plan.run.learners))
    # The parameters and the optimizer's arrays, to which every learner adds its steps.
    edges = (SharedArrays("vector", members, vector),)
    # A step that was added cannot be taken back, however old it is.
    return Rule(f"{module}:build", f"{module}:build_owner", told, (), math.inf, edges)


def rollout_arrays(plan: Plan) -> tuple[ArraySpec, ...]:
    """The arrays of a slot of a stream of rollouts."""
    return rollout_specs(
        plan.spaces,
        plan.learning.spec.row,
        plan.num_steps,
        plan.run.num_envs // plan.num_workers,
        same_step=plan.same_step,
        beside_return=plan.beside_return,
        carry=plan.learning.spec.policy.carry,
    )


def stream_minibatch(plan: Plan, sharing: int) -> Minibatch:
    """Memory of a learner's share of a minibatch: indices and weights of rows, with torch also copies of the rows.

    The networks' outputs are counted for one part of the minibatch at a time.
    """
    spec = plan.learning.spec
    units = part_rows(plan, sharing)
    whole, part = (spec.rows(number, plan.num_steps) for number in (spec.schedule.mini_batch_size, units))
    held = part * plan.run.accumulate
    row = NUMBER_BYTES
    if not plan.learning.backend.native:
        lanes = plan.run.num_envs // plan.num_workers
        kept = sum(part.nbytes for part in rollout_arrays(plan) if part.name in spec.minibatch)
        row += kept // ((plan.num_steps + 1) * lanes)
        row += sum(target.nbytes for target in spec.targets if target.name in spec.minibatch)
    return Minibatch(whole, held * row + part * activation_bytes(plan))


def updater_settings(plan: Plan, learner: int, sharing: int, *, pull_after: int = 0) -> UpdaterSettings:
    """Settings of one learner's updater. If learners share each minibatch, it takes its part of the rows."""
    schedule = replace(plan.learning.spec.schedule, mini_batch_size=part_rows(plan, sharing))
    return UpdaterSettings(
        learn=plan.learning.learn,
        config=plan.learning.algorithm_config,
        spec=replace(plan.learning.spec, schedule=schedule),
        spaces=plan.spaces,
        device=plan.run.device,
        threads=plan.learner_threads,
        seed=plan.run.seed,
        learner=learner,
        compress=plan.run.compress,
        pull_after=pull_after,
        accumulate=plan.run.accumulate,
    )


def part_rows(plan: Plan, sharing: int) -> int:
    """Rows or lanes of a minibatch that one of ``sharing`` learners takes at a time. The plan's split is even."""
    return plan.learning.spec.schedule.mini_batch_size // (sharing * plan.run.accumulate)


def required(plan: Plan, part: str | None) -> str:
    """``part`` of the update backend, if the backend has it.

    Raises:
        ConfigError: the backend has no such part for the learners of this topology.
    """
    if part is None:
        run = plan.run
        raise ConfigError(f"--backend {run.backend} does not run --algo {run.algo} here; try --backend auto")
    return part


def activation_bytes(plan: Plan) -> int:
    """Least bytes of main memory for the networks' outputs, for each row that is learned from.

    Counts the outputs of linear layers, which the backward pass needs. An algorithm's own networks (critics) are known
    by their size only.
    """
    if plan.run.device != "cpu" or plan.learning.backend.native:
        return 0
    networks = plan.learning.spec.policy.networks
    outputs = sum(layer.outputs for network in networks for layer in network.layers if isinstance(layer, Linear))
    own = max(network.num_parameters for network in networks)
    largest = max(part.size for part in plan.learning.spec.shared())
    return 4 * outputs * max(own, largest) // own
