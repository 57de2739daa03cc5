"""The graph of all training. A `Pattern` adds the edge of the rollouts and the learners.

env.0 .. env.n --rollouts--> learner --policy--> env.0 .. env.n
                             learner --checkpoints--> checkpointer
                             learner --evaluations--> evaluator --evaluation--> learner
                             learner, evaluator --reports--> monitor

Environment nodes run the policy themselves, or ask policy nodes (``policy_placement``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from penstock.algorithm import UpdaterSettings
from penstock.algorithm_package import find_algorithm
from penstock.config.agreement import HANDED_ON, HOGWILD, Agreement
from penstock.config.schema import RunConfig
from penstock.errors import ConfigError
from penstock.experiments.run_folder import RunFolder
from penstock.kernels.actions import environment_array
from penstock.metrics.report import RETURN_WINDOW, report_specs
from penstock.nodes.checkpointer import CheckpointerSettings
from penstock.nodes.contract import LaneStart
from penstock.nodes.env import EnvSettings
from penstock.nodes.evaluation import EvaluatorSettings, PlaySettings
from penstock.nodes.learner import VERDICT, KeeperSettings
from penstock.nodes.learner.gradient_slot import vector_specs
from penstock.nodes.monitor import MonitorSettings
from penstock.nodes.policy_node import PolicyNodeSettings
from penstock.policies import Linear
from penstock.policies.acting import PolicySettings
from penstock.policies.batching import BatchRule
from penstock.policies.exploration import Exploration
from penstock.program.graph import (
    ActionLog,
    Ask,
    Board,
    Edge,
    LocalAnswer,
    Meeting,
    Minibatch,
    NodeSpec,
    Program,
    Record,
    RemoteAnswer,
    SharedArrays,
    Stream,
    Table,
)
from penstock.program.plan import Plan
from penstock.program.rollout import rollout_specs
from penstock.types import ArraySpec, BackendSpec

__all__ = [
    "OPEN_LIMIT_S",
    "Pattern",
    "Rule",
    "activation_bytes",
    "env_names",
    "follower_names",
    "gradients_waiting",
    "keeper_settings",
    "learner_imports",
    "learner_names",
    "learner_nodes",
    "part_rows",
    "policy_imports",
    "pull_after",
    "required",
    "rollout_arrays",
    "rule_of",
    "step_limit_s",
    "stream_minibatch",
    "updater_settings",
    "wire",
]

ACTION_LOG_CAPACITY = 10_000
OPEN_LIMIT_S = 300.0
"""Longest time for work that a node announces: compiling an update, opening environments, writing a checkpoint."""
NUMBER_BYTES = 12
"""Bytes of a row's flat index and weight."""


GAMES = "games"
"""Name of the node that games connect to, of its process, and of the meeting of lanes and sessions."""


@dataclass(frozen=True)
class Pattern:
    """The parts of the graph in which ways of training differ."""

    rollouts: Edge
    """The stream or table that environment nodes write, and learners read."""
    record: tuple[ArraySpec, ...]
    """Arrays that the learner commits."""
    learners: tuple[NodeSpec, ...]
    """The learner nodes. The first one is the keeper."""
    max_lag: int | None
    """Largest lag on the board ``policy``: 0 in lock step, ``None`` if no node waits for a version."""
    niceness: int
    """Niceness of the environment processes."""
    together: tuple[Edge, ...] = ()
    """Edges between several learners."""
    policy_readers: tuple[str, ...] = ()
    """Learners that take their parameters from board ``policy``."""


def env_names(plan: Plan) -> tuple[str, ...]:
    """The environment nodes, in lane order."""
    return tuple(f"env.{worker}" for worker in range(plan.num_workers))


def wire(plan: Plan, pattern: Pattern) -> Program:
    """The whole graph of actor-learner training, in data-flow order."""
    run, spec = plan.run, plan.learning.spec
    lanes = run.num_envs // plan.num_workers
    envs = env_names(plan)
    policies = tuple(f"policy.{index}" for index in range(run.policy_nodes if run.policy_placement == "node" else 0))
    evaluators = ("evaluator",) if run.eval_interval else ()
    record = pattern.record
    action = plan.spaces.action_spec()
    fields = tuple(name for name, _ in plan.spaces.obs)
    stacks = _stacks(plan, pattern.rollouts)
    restores = (
        ArraySpec("actions", (run.num_envs, ACTION_LOG_CAPACITY, *action.shape), action.dtype),
        ArraySpec("actions_count", (run.num_envs,), "int64"),
    )
    asked = ArraySpec("evaluation_asked", (), "bool")
    # A report holds the return of each of its episodes.
    told = max(RETURN_WINDOW, run.eval_episodes if evaluators else 0)
    request = (
        *spec.published(),
        ArraySpec("update", (), "int64"),
        ArraySpec("steps", (), "int64"),
        ArraySpec("elapsed_s", (), "float64"),
        *VERDICT,
    )
    edges: list[Edge] = [
        # Experience: written once, in place, and read in place.
        pattern.rollouts,
        *pattern.together,
        # Actions that restore each lane's episode. The learner copies them into checkpoints.
        *(ActionLog(f"actions.{env}", env, ("learner",), lanes, fields, action, ACTION_LOG_CAPACITY) for env in envs),
        # The commit record. A new learner continues from it, and new environment nodes read the state of their lanes.
        Record("learner", "learner", record, envs),
        # Parameters and statistics, to all nodes that act.
        Board(
            "policy",
            "learner",
            (*envs, *policies, *pattern.policy_readers, *evaluators),
            spec.published(),
            pattern.max_lag,
        ),
        # Actions for observations, written into the rows.
        Ask("act", envs, "policy", _remote(plan, policies, lanes, stacks) if policies else _local(plan, stacks)),
        # Committed records, to disk.
        Stream("checkpoints", ("learner",), ("checkpointer",), (*record, *restores, asked), 2, "wait"),
        # Numbers, to the metrics.
        Stream("reports", ("learner", *evaluators), ("monitor",), report_specs(told), 16, "drop"),
    ]
    if evaluators:
        edges += [
            # Parameters to be evaluated, and the verdict.
            Stream("evaluations", ("learner",), evaluators, request, 1, "drop"),
            Board("evaluation", "evaluator", ("learner",), VERDICT),
        ]
    if plan.games is not None:
        # Each lane is handed to a session.
        edges.append(Meeting(GAMES, (*envs, GAMES)))
    nodes = [
        *_sources(plan, lanes, pattern.niceness),
        *(_policy(plan, name, stacks) for name in policies),
        *pattern.learners,
        *(_evaluator(plan) for _ in evaluators),
        _checkpointer(plan, pattern.rollouts),
        _monitor(plan),
    ]
    return Program(
        tuple(nodes),
        tuple(edges),
        ends_with=("learner",),
        max_restarts=run.max_restarts,
        stall_limit_s=run.stall_timeout,
        address=run.address,
        demands={} if run.resources is None else run.resources.asked,
        trace=RunFolder(plan.folder).trace if run.trace else None,
        deaths=RunFolder(plan.folder).deaths,
    )


def _sources(plan: Plan, lanes: int, niceness: int) -> tuple[NodeSpec, ...]:
    """The nodes that write rollouts: environment nodes; or the lanes of games, and the node that games connect to."""
    nodes = tuple(_env(plan, worker, lanes, niceness) for worker in range(plan.num_workers))
    if plan.games is None:
        return nodes
    imports = policy_imports(plan.run, plan.learning.inference)
    return (
        *(replace(node, kind="game_lane", group=GAMES) for node in nodes),
        NodeSpec(GAMES, "games", plan.games, group=GAMES, niceness=niceness, imports=imports),
    )


def _env(plan: Plan, worker: int, lanes: int, niceness: int) -> NodeSpec:
    first = worker * lanes
    starts: tuple[LaneStart, ...] = plan.starts[first : first + lanes]
    settings = EnvSettings(
        env=plan.env,
        vector=plan.run.vector_env,
        ignore_obs=plan.run.ignore_obs or (),
        spaces=plan.spaces,
        worker=worker,
        num_workers=plan.num_workers,
        first_lane=first,
        lanes=lanes,
        num_steps=plan.num_steps,
        seed=plan.run.seed,
        starts=starts,
        bad_numbers=plan.run.bad_numbers,
        open_limit_s=OPEN_LIMIT_S,
        masks=find_algorithm(plan.run.algo).masks,
        reward=plan.reward,
    )
    name = f"env.{worker}"
    limit = step_limit_s(plan.run, plan.kind, lanes)
    return NodeSpec(
        name,
        "env",
        settings,
        group=name,
        silence_limit_s=limit,
        niceness=niceness,
        core=worker if plan.own_cores else None,
        imports=policy_imports(plan.run, plan.learning.inference),
    )


def step_limit_s(run: RunConfig, kind: Literal["scalar", "vector", "game"], lanes: int) -> float:
    """Longest silence of a node that steps environments: one step of a scalar one, or one call for all lanes."""
    return run.env_timeout * (lanes if kind == "vector" else 1)


def _stacks(plan: Plan, rollouts: Edge) -> tuple[ArraySpec, ...]:
    """Observation fields that rollouts store in another shape than the policy sees: one frame instead of a stack."""
    kept = {spec.name: spec.shape[2:] for spec in rollouts.arrays} if isinstance(rollouts, Table) else {}
    return tuple(spec for spec in plan.spaces.obs_specs() if kept.get(spec.name, spec.shape) != spec.shape)


def _local(plan: Plan, stacks: tuple[ArraySpec, ...]) -> LocalAnswer:
    return LocalAnswer("policy", _policy_settings(plan, stacks))


def _policy_settings(plan: Plan, stacks: tuple[ArraySpec, ...]) -> PolicySettings:
    return PolicySettings(
        backend=plan.learning.inference,
        policy=plan.learning.spec.policy,
        spaces=plan.spaces,
        row=plan.learning.spec.row,
        seed=plan.run.seed,
        exploration=_exploration(plan),
        stacks=stacks,
    )


def _exploration(plan: Plan) -> Exploration:
    run, spec = plan.run, plan.learning.spec
    return Exploration(spec.explore, spec.warmup, run.num_envs, run.timesteps / run.num_envs)


def _remote(plan: Plan, policies: tuple[str, ...], lanes: int, stacks: tuple[ArraySpec, ...]) -> RemoteAnswer:
    array = environment_array(plan.spaces.action, lanes)
    action = ArraySpec("environment_action", array.shape, array.dtype.name)
    carry = tuple(spec.within(lanes) for spec in plan.learning.spec.policy.carry)
    return RemoteAnswer(policies, "rollouts", action, tuple(spec.within(lanes) for spec in stacks), carry)


def _policy(plan: Plan, name: str, stacks: tuple[ArraySpec, ...]) -> NodeSpec:
    rule = BatchRule(plan.run.max_batch, plan.run.max_wait)
    settings = PolicyNodeSettings(_policy_settings(plan, stacks), OPEN_LIMIT_S, rule)
    imports = policy_imports(plan.run, plan.learning.inference)
    return NodeSpec(name, "policy_node", settings, group=name, imports=imports)


def learner_names(count: int) -> tuple[str, ...]:
    """Names of the learners that step together. The first one is the keeper."""
    return ("learner", *(f"learner.{number}" for number in range(1, count)))


def learner_imports(plan: Plan) -> tuple[str, ...]:
    """Modules of a learner process that take seconds to import: torch and its compiler."""
    return () if plan.learning.update.native else _imports(plan.run, plan.learning.update.stream)


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
            minibatch=memory,
            imports=learner_imports(plan),
        )
        for name, kind, own in zip(names, kinds, settings, strict=True)
    )


def policy_imports(run: RunConfig, inference: BackendSpec) -> tuple[str, ...]:
    """Modules of a process that runs the policy that take seconds to import: torch, if it runs the policy."""
    return _imports(run, inference.build) if run.inference == "torch" else ()


def _imports(run: RunConfig, reference: str) -> tuple[str, ...]:
    # CUDA does not survive a fork once it is initialised, and an import may initialise it.
    return (reference.partition(":")[0],) if run.device == "cpu" else ()


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
    )


def follower_names(count: int) -> tuple[str, ...]:
    """Names of the learners that hand their gradients on to node ``learner``."""
    return tuple(f"learner.{number}" for number in range(1, count + 1))


def gradients_waiting(plan: Plan) -> int:
    """Slots of the stream of gradients: each learner fills one while the other waits."""
    return HANDED_ON * plan.run.learners


def pull_after(plan: Plan, pace: str) -> int:
    """Gradient steps that a learner's parameters may be behind before it takes newer ones.

    Gradients that wait when one is handed on are applied before it, and make it so much older.
    """
    return plan.run.max_policy_lag - gradients_waiting(plan) if pace == "lag" else 0


class Rule(NamedTuple):
    """How learners that wait for no other one hand on what they have learned."""

    team: str
    """``module:build`` of a learner's end."""
    owner: str | None
    """``module:build_owner`` of the end of the node that owns the state, if learners apply their own gradients."""
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
        shared, room = spec.shared(), "penstock.gradient_exchange.gradients"
        return Rule(f"{room}:build", None, shared, shared, plan.run.max_policy_lag, ())
    vector, room = vector_specs(spec.state), "penstock.gradient_exchange.hogwild"
    told = tuple(part for part in spec.shared() if part.name == "progress")
    members = ("learner", *follower_names(plan.run.learners))
    # The parameters and the optimizer's arrays, to which every learner adds its steps.
    edges = (SharedArrays("vector", members, vector),)
    # A step that was added cannot be taken back, however old it is.
    return Rule(f"{room}:build", f"{room}:build_owner", told, (), math.inf, edges)


def rollout_arrays(plan: Plan) -> tuple[ArraySpec, ...]:
    """The arrays of a slot of a stream of rollouts."""
    return rollout_specs(
        plan.spaces,
        plan.learning.spec.row,
        plan.num_steps,
        plan.run.num_envs // plan.num_workers,
        same_step=plan.same_step,
        shaped=plan.shaped,
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
    if not plan.learning.update.native:
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
    """Rows of a minibatch that one of ``sharing`` learners takes at a time.

    Raises:
        ConfigError: the minibatch cannot be split evenly.
    """
    size, count = plan.learning.spec.schedule.mini_batch_size, sharing * plan.run.accumulate
    part, rest = divmod(size, count)
    if rest:
        sharers = [f"{sharing} learners"] * (sharing > 1) + [f"{plan.run.accumulate} parts"] * (plan.run.accumulate > 1)
        if plan.learning.spec.unit == "lane":
            what, steps = ("whole lanes", "num_steps")
            if plan.learning.spec.table is not None:
                what, steps = ("sequences", "learned_steps")
            raise ConfigError(
                f"a minibatch of {size} {what} cannot be split evenly over {' of '.join(sharers)}: "
                f"--mini_batch_size / --{steps} are their number, which must be a multiple of {count}"
            )
        raise ConfigError(
            f"--mini_batch_size {size} cannot be split evenly over {' of '.join(sharers)}; give a multiple of {count}"
        )
    return part


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
    if plan.run.device != "cpu" or plan.learning.update.native:
        return 0
    networks = plan.learning.spec.policy.networks
    outputs = sum(layer.outputs for network in networks for layer in network.layers if isinstance(layer, Linear))
    own = max(network.num_parameters for network in networks)
    largest = max(part.size for part in plan.learning.spec.shared())
    return 4 * outputs * max(own, largest) // own


def _evaluator(plan: Plan) -> NodeSpec:
    played = PlaySettings(
        env=plan.env,
        vector=plan.run.vector_env,
        ignore_obs=plan.run.ignore_obs or (),
        spaces=plan.spaces,
        policy=plan.learning.spec.policy,
        backend=plan.learning.inference,
        lanes=plan.run.num_envs,
        seed=plan.run.seed,
        bad_numbers=plan.run.bad_numbers,
        open_limit_s=OPEN_LIMIT_S,
        masks=find_algorithm(plan.run.algo).masks,
    )
    settings = EvaluatorSettings(played, plan.run.eval_episodes)
    limit = step_limit_s(plan.run, plan.kind, plan.run.num_envs)
    return NodeSpec(
        "evaluator",
        "evaluator",
        settings,
        group="evaluator",
        silence_limit_s=limit,
        imports=policy_imports(plan.run, plan.learning.inference),
    )


def _checkpointer(plan: Plan, rollouts: Edge) -> NodeSpec:
    table, file = (rollouts.name, rollouts.file) if isinstance(rollouts, Table) else (None, None)
    settings = CheckpointerSettings(
        plan.folder,
        plan.run.keep_checkpoints,
        plan.run.keep_every,
        plan.manifest,
        OPEN_LIMIT_S,
        table,
        file,
    )
    return NodeSpec("checkpointer", "checkpointer", settings, group="monitor")


def _monitor(plan: Plan) -> NodeSpec:
    settings = MonitorSettings(
        folder=plan.folder,
        title=plan.folder.name,
        timesteps=plan.run.timesteps,
        log_interval=plan.run.log_interval,
        quiet=plan.quiet,
        resumed_update=plan.resumed_update,
        resumed_steps=plan.resumed_steps,
        told=plan.told,
    )
    return NodeSpec("monitor", "monitor", settings, group="monitor")
