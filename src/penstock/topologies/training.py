"""The graph of all training. A topology's `TopologyParts` add the edge of the rollouts and the learners.

env.0 .. env.n --rollouts--> learner --policy--> env.0 .. env.n
                             learner --checkpoints--> checkpointer
                             learner --evaluations--> evaluator --evaluation--> learner
                             learner, evaluator --reports--> monitor
                             checkpointer --histograms--> monitor, if they are asked for

Environment nodes run the policy themselves, or ask policy nodes (``policy_placement``).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from penstock.algorithm import AlgorithmSpec, ReplaySchedule
from penstock.algorithm_package import find_algorithm
from penstock.config.schema import RunConfig
from penstock.kernels.actions import environment_array
from penstock.memory.snapshots import SNAPSHOT_BYTES
from penstock.metrics.histograms import Part
from penstock.metrics.report import RETURN_WINDOW, Report, report_specs
from penstock.metrics.return_range import ReturnRange
from penstock.nodes.checkpointer import CheckpointerSettings
from penstock.nodes.contract import CHECKPOINT_SLOTS, OPEN_LIMIT_S, LaneStart
from penstock.nodes.env import EnvSettings
from penstock.nodes.evaluation import EvaluatorSettings, PlaySettings
from penstock.nodes.learner import VERDICT
from penstock.nodes.monitor import MonitorSettings
from penstock.nodes.policy_node import PolicyNodeSettings
from penstock.policies.acting import PolicySettings
from penstock.policies.batching import BatchRule
from penstock.policies.exploration import Exploration
from penstock.policies.heads import EpsilonGreedy
from penstock.program.graph import (
    ActionLog,
    Ask,
    Board,
    Edge,
    LocalAnswer,
    Meeting,
    NodeSpec,
    Program,
    Record,
    RemoteAnswer,
    Stream,
    Table,
)
from penstock.program.plan import Plan
from penstock.saved_runs.pasts import past_specs
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import ArraySpec, BackendSpec

__all__ = [
    "NICENESS",
    "TopologyParts",
    "env_names",
    "policy_imports",
    "slow_imports",
    "step_limit_s",
    "wire",
]

ACTION_LOG_CAPACITY = 10_000
"""Longest episode, in steps, that seed and actions restore. A longer one needs snapshots of its environment."""
NICENESS = 5
"""Niceness of environment processes where collection overlaps learning. They get a third of the learner's share of a
core. With equal shares, two environment processes and a slow learner do not fill two cores: both processes wait for the
learner, and one core rests.
"""
BETWEEN_LINES_S = 1.0
"""Least seconds between two lines of updates, unless ``--log_interval`` differs from its default."""
GAMES = "games"
"""Name of the node that games connect to, of its process, and of the meeting of lanes and sessions."""


@dataclass(frozen=True, kw_only=True)
class TopologyParts:
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


def wire(plan: Plan, topology: TopologyParts) -> Program:
    """The whole graph of actor-learner training, in data-flow order."""
    run, spec = plan.run, plan.learning.spec
    lanes = run.num_envs // plan.num_workers
    envs = env_names(plan)
    policies = tuple(f"policy.{index}" for index in range(run.policy_nodes if run.policy_placement == "node" else 0))
    evaluators = ("evaluator",) if run.eval_interval else ()
    record = topology.record
    action = plan.spaces.action_spec()
    fields = tuple(name for name, _ in plan.spaces.obs)
    stacks = _stacks(plan, topology.rollouts)
    # A vector environment cannot step a lane by itself, so nothing can be laid on a lane of it.
    snapshot_bytes = SNAPSHOT_BYTES if plan.kind == "scalar" else 0
    restores = past_specs(run.num_envs, action, ACTION_LOG_CAPACITY, snapshot_bytes)
    checkpoint_flags = tuple(ArraySpec(name, (), "bool") for name in ("evaluation_asked", "passing"))
    # A report holds the return of each of its episodes.
    reported_returns = max(RETURN_WINDOW, run.eval_episodes if evaluators else 0)
    request = (
        *spec.published(),
        ArraySpec("update", (), "int64"),
        ArraySpec("steps", (), "int64"),
        ArraySpec("elapsed_s", (), "float64"),
        *VERDICT,
    )
    edges: list[Edge] = [
        # Experience: written once, in place, and read in place.
        topology.rollouts,
        *topology.together,
        # Actions that restore each lane's episode. The learner copies them into checkpoints.
        *(
            ActionLog(
                f"actions.{env}",
                writer=env,
                readers=("learner",),
                lanes=lanes,
                fields=fields,
                action=action,
                capacity=ACTION_LOG_CAPACITY,
                snapshot_bytes=snapshot_bytes,
            )
            for env in envs
        ),
        # The commit record. A new learner continues from it, and new environment nodes read the state of their lanes.
        Record("learner", "learner", record, envs),
        # Parameters and statistics, to all nodes that act.
        Board(
            "policy",
            "learner",
            (*envs, *policies, *topology.policy_readers, *evaluators),
            spec.published(),
            topology.max_lag,
        ),
        # Actions for observations, written into the rows.
        Ask("act", envs, "policy", _remote(plan, policies, lanes, stacks) if policies else _local(plan, stacks)),
        # Committed records, to disk.
        Stream(
            "checkpoints",
            ("learner",),
            ("checkpointer",),
            (*record, *restores, *checkpoint_flags),
            CHECKPOINT_SLOTS,
            "wait",
        ),
        # Numbers, to the metrics.
        Stream("reports", ("learner", *evaluators), ("monitor",), report_specs(reported_returns), 16, "drop"),
    ]
    if evaluators:
        edges += [
            # Parameters to be evaluated, and the verdict.
            Stream("evaluations", ("learner",), evaluators, request, 1, "drop"),
            Board("evaluation", "evaluator", ("learner",), VERDICT),
        ]
    if plan.run.tensorboard_histograms:
        # How the parameters of each checkpoint are spread.
        edges.append(Meeting("histograms", ("checkpointer", "monitor")))
    if plan.games is not None:
        # Each lane is handed to a session.
        edges.append(Meeting(GAMES, (*envs, GAMES)))
    nodes = [
        *_sources(plan, lanes, topology.niceness),
        *(_policy(plan, name, stacks) for name in policies),
        *topology.learners,
        *(_evaluator(plan) for _ in evaluators),
        _checkpointer(plan, topology.rollouts),
        _monitor(plan),
    ]
    return Program(
        tuple(nodes),
        tuple(edges),
        ends_with=("learner",),
        max_restarts=run.max_restarts,
        stall_limit_s=run.stall_timeout,
        address=run.address,
        modules=plan.modules,
        demands={} if run.resources is None else run.resources.asked,
        min_workers=run.min_workers,
        trace=RunFolder(plan.folder).trace if run.trace else None,
        folder=plan.folder,
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
        renew_every=plan.run.renew_every,
        seed=plan.run.seed,
        starts=starts,
        bad_numbers=plan.run.bad_numbers,
        open_limit_s=OPEN_LIMIT_S,
        masks=find_algorithm(plan.run.algo).masks,
        reward=plan.reward,
        episode_metrics=plan.run.episode_metrics or (),
    )
    name = f"env.{worker}"
    limit = step_limit_s(plan.run, plan.kind, lanes)
    return NodeSpec(
        name,
        "env",
        settings,
        group=name,
        silence_limit_s=limit,
        steps_envs=True,
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
    return LocalAnswer("local_policy", _policy_settings(plan, stacks))


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
    streams = ("rollouts",) * plan.num_workers
    return RemoteAnswer(policies, streams, action, tuple(spec.within(lanes) for spec in stacks), carry)


def _policy(plan: Plan, name: str, stacks: tuple[ArraySpec, ...]) -> NodeSpec:
    rule = BatchRule(plan.run.max_batch, plan.run.max_wait)
    settings = PolicyNodeSettings(_policy_settings(plan, stacks), OPEN_LIMIT_S, rule)
    imports = policy_imports(plan.run, plan.learning.inference)
    return NodeSpec(name, "policy_node", settings, group=name, imports=imports)


def policy_imports(run: RunConfig, inference: BackendSpec) -> tuple[str, ...]:
    """Modules of a process that runs the policy that take seconds to import: torch, if it runs the policy."""
    return slow_imports(run, inference.build) if run.inference == "torch" else ()


def slow_imports(run: RunConfig, reference: str) -> tuple[str, ...]:
    """The module of ``reference``, to be imported before a process is forked, where that is safe."""
    # CUDA does not survive a fork once it is initialised, and an import may initialise it.
    return (reference.partition(":")[0],) if run.device == "cpu" else ()


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
        episode_metrics=plan.run.episode_metrics or (),
    )
    settings = EvaluatorSettings(played, plan.run.eval_episodes)
    limit = step_limit_s(plan.run, plan.kind, plan.run.num_envs)
    return NodeSpec(
        "evaluator",
        "evaluator",
        settings,
        group="evaluator",
        silence_limit_s=limit,
        steps_envs=True,
        imports=policy_imports(plan.run, plan.learning.inference),
    )


def _checkpointer(plan: Plan, rollouts: Edge) -> NodeSpec:
    # This machine does not have all rows of a table whose shards lie with their learners.
    whole = isinstance(rollouts, Table) and not rollouts.resident
    table, file = (rollouts.name, rollouts.file) if isinstance(rollouts, Table) and whole else (None, None)
    settings = CheckpointerSettings(
        folder=plan.folder,
        keep=plan.run.keep_checkpoints,
        keep_every=plan.run.keep_every,
        manifest=plan.manifest,
        write_limit_s=OPEN_LIMIT_S,
        table=table,
        table_file=file,
        parts=tuple(_parts(plan.learning.spec)) if plan.run.tensorboard_histograms else (),
    )
    return NodeSpec("checkpointer", "checkpointer", settings, group="monitor")


def _parts(spec: AlgorithmSpec) -> Iterator[Part]:
    """The arrays of each layer of the policy's networks; each other vector of parameters as a whole."""
    networks = {network.name: network for network in spec.policy.networks}
    for array in spec.shared():
        size = math.prod(array.shape)
        if array.name in networks:
            for part in networks[array.name].slices():
                yield Part(f"{array.name}/{part.name}", array.name, part.offset, math.prod(part.shape))
        elif array.dtype == "float32" and size > 1:
            yield Part(f"{array.name}/all", array.name, 0, size)


def _monitor(plan: Plan) -> NodeSpec:
    settings = MonitorSettings(
        folder=plan.folder,
        title=plan.folder.name,
        timesteps=plan.run.timesteps,
        log_interval=plan.run.log_interval,
        least_s=0.0 if plan.run.log_interval != RunConfig.log_interval else BETWEEN_LINES_S,
        quiet=plan.quiet,
        tensorboard_axis=plan.run.tensorboard_axis,
        resumed=Report(plan.resumed_update, plan.resumed_steps, plan.resumed_s, {}),
        awaited=_awaited(plan),
        settings=plan.settings,
        told=plan.told,
        episode_metrics=plan.run.episode_metrics or (),
        return_range=_return_range(plan.learning.spec),
        histograms=plan.run.tensorboard_histograms,
    )
    return NodeSpec("monitor", "monitor", settings, group="monitor")


def _return_range(spec: AlgorithmSpec) -> ReturnRange | None:
    """The range of the returns that the policy tells apart, if it learns their distribution.

    ``None`` if rewards are cut before they are learned from: the returns that a run reports are not.
    """
    head, table = spec.policy.head, spec.table
    if not isinstance(head, EpsilonGreedy) or head.atoms == 1 or table is None or table.reward_limit < math.inf:
        return None
    return ReturnRange(head.low, head.high, table.gamma)


def _awaited(plan: Plan) -> str:
    """What happens before the first update."""
    schedule = plan.learning.spec.schedule
    if isinstance(schedule, ReplaySchedule):
        return f"the lanes together play {schedule.min_rows:,} steps before it (--min_rows)"
    return f"each lane plays {plan.num_steps:,} steps before it (--num_steps; lanes: {plan.run.num_envs:,})"
