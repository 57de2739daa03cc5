"""The process beside a training that writes files: the checkpointer and the monitor, which share it."""

import math
from collections.abc import Iterator

from penstock.algorithm import AlgorithmSpec, ReplaySchedule
from penstock.config.episode_metrics import episode_metrics
from penstock.config.schema import RunConfig
from penstock.metrics.first_update import FirstUpdate
from penstock.metrics.histograms import Part
from penstock.metrics.model_graph import model_graph
from penstock.metrics.report import Report
from penstock.metrics.return_range import ReturnRange
from penstock.nodes.checkpointer import CheckpointerSettings
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.nodes.monitor import MonitorSettings
from penstock.policies.heads import EpsilonGreedy
from penstock.program.graph import Edge, NodeSpec, Table
from penstock.program.plan import Plan
from penstock.topologies.env_nodes import env_names

__all__ = ["checkpointer_node", "monitor_node"]

BETWEEN_LINES_S = 1.0
"""Least seconds between two lines of updates, unless ``--log_interval`` differs from its default."""


def checkpointer_node(plan: Plan, rollouts: Edge) -> NodeSpec:
    """The checkpointer. It also keeps the rows of a table, if all of them lie on this machine."""
    # This machine does not have all rows of a table whose shards lie with their learners.
    whole = isinstance(rollouts, Table) and not rollouts.resident
    table, file = (rollouts.name, rollouts.file) if isinstance(rollouts, Table) and whole else (None, None)
    settings = CheckpointerSettings(
        folder=plan.folder,
        keep=plan.run.keep_checkpoints,
        keep_every=plan.run.keep_every,
        manifest=plan.manifest,
        write_limit_s=WORK_LIMIT_S,
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


def monitor_node(plan: Plan, learners: tuple[str, ...]) -> NodeSpec:
    """The monitor: metrics, lines of the display, TensorBoard.

    Args:
        plan: of the run.
        learners: the nodes that learn.
    """
    settings = MonitorSettings(
        folder=plan.folder,
        title=plan.folder.name,
        timesteps=plan.run.timesteps,
        log_interval=plan.run.log_interval,
        lanes=plan.run.num_envs,
        least_s=0.0 if plan.run.log_interval != RunConfig.log_interval else BETWEEN_LINES_S,
        quiet=plan.quiet,
        tensorboard_axis=plan.run.tensorboard_axis,
        resumed=Report(plan.resumed_update, plan.resumed_steps, plan.resumed_s, {}),
        first_update=_first_update(plan, learners),
        settings=plan.settings,
        first_lines=plan.first_lines,
        episode_metrics=episode_metrics(plan.run.episode_metrics),
        return_range=_return_range(plan.learning.spec),
        graph=model_graph(plan.learning.spec.policy, plan.spaces),
        histograms=plan.run.tensorboard_histograms,
    )
    return NodeSpec("monitor", "monitor", settings, group="monitor")


def _return_range(spec: AlgorithmSpec) -> ReturnRange | None:
    """The range of returns that the policy can tell apart, if it learns a distribution of returns; else ``None``.

    Also ``None`` if rewards are cut for learning: reported returns are sums of uncut rewards, so the range is not
    theirs.
    """
    head, table = spec.policy.head, spec.table
    if not isinstance(head, EpsilonGreedy) or head.atoms == 1 or table is None or table.reward_limit < math.inf:
        return None
    return ReturnRange(head.low, head.high, table.gamma)


def _first_update(plan: Plan, learners: tuple[str, ...]) -> FirstUpdate:
    """What the first update needs."""
    schedule, run = plan.learning.spec.schedule, plan.run
    lanes = run.num_envs // plan.num_workers
    rows = [start.collected - start.spoilt for start in plan.starts]
    given = {name: sum(rows[number * lanes : (number + 1) * lanes]) for number, name in enumerate(env_names(plan))}
    least, played = None, f"each lane plays {plan.num_steps:,} steps before it (--num_steps; lanes: {run.num_envs:,})"
    if isinstance(schedule, ReplaySchedule) and plan.learning.spec.cloning is None:
        least = schedule.min_rows
        played = f"the lanes together play {least:,} steps before it (--min_rows)"
    learned = "the learner learns from them"
    if run.learners > 1:
        learned = f"{run.learners} learners learn from them"
        if run.pace == "sync":
            learned += ", each of which waits for all others"
    return FirstUpdate(given, learners, least, played, learned)
