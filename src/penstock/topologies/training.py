"""The graph of all training. A topology's `TopologyParts` add the edge of the rollouts and the learners.

env.0 .. env.n --rollouts--> learner --policy--> env.0 .. env.n
                             learner --checkpoints--> checkpointer
                             learner --evaluations--> evaluator --evaluation--> learner
                             learner, evaluator --reports--> monitor
                             checkpointer --histograms--> monitor, if they are asked for

Environment nodes run the policy themselves, or ask policy nodes (``policy_placement``).
"""

from dataclasses import dataclass

from penstock.memory.snapshots import SNAPSHOT_BYTES
from penstock.metrics.report import RETURN_WINDOW, report_specs
from penstock.nodes.contract import CHECKPOINT_SLOTS
from penstock.nodes.learner import VERDICT
from penstock.program.graph import ActionLog, Ask, Board, Edge, NodeSpec, Program, Record, SharedObject, Stream
from penstock.program.plan import Plan
from penstock.saved_runs.pasts import past_specs
from penstock.saved_runs.run_folder import RunFolder
from penstock.topologies.acting import answer, policy_names, policy_nodes
from penstock.topologies.env_nodes import GAMES, env_names, env_nodes
from penstock.topologies.evaluator import evaluator_node
from penstock.topologies.monitor import checkpointer_node, monitor_node
from penstock.types import ArraySpec

__all__ = ["TopologyParts", "wire"]

ACTION_LOG_CAPACITY = 10_000
"""Longest episode, in steps, that seed and actions restore. A longer one needs snapshots of its environment."""


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


def wire(plan: Plan, topology: TopologyParts) -> Program:
    """The whole graph of actor-learner training, in data-flow order."""
    run, spec = plan.run, plan.learning.spec
    lanes = run.num_envs // plan.num_workers
    envs = env_names(plan)
    policies = policy_names(plan)
    evaluators = ("evaluator",) if run.eval_interval else ()
    record = topology.record
    action = plan.spaces.action_spec()
    fields = tuple(name for name, _ in plan.spaces.obs)
    # A vector environment cannot step a lane by itself, so no snapshot can be applied to a lane of it.
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
        Ask("act", envs, "policy", answer(plan, topology.rollouts)),
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
        edges.append(SharedObject("histograms", ("checkpointer", "monitor")))
    if plan.games is not None:
        # Each lane is handed to a session.
        edges.append(SharedObject(GAMES, (*envs, GAMES)))
    nodes = [
        *env_nodes(plan, topology.niceness),
        *policy_nodes(plan, topology.rollouts),
        *topology.learners,
        *(evaluator_node(plan) for _ in evaluators),
        checkpointer_node(plan, topology.rollouts),
        monitor_node(plan, tuple(learner.name for learner in topology.learners)),
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
