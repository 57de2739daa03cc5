"""Learning from a table in lock step: a turn is one rollout of every environment node, then the due gradient steps.

Rollouts stay in rings of shared memory, one for each environment node, until they are overwritten. The learner samples
its minibatches from there.
"""

import math
from dataclasses import replace
from typing import Literal

from penstock.config.demonstrations import shares
from penstock.errors import ConfigError
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.nodes.learner import (
    DemonstrationSettings,
    DemonstrationSource,
    EpisodeDemonstrations,
    ReplayLearnerSettings,
    ReplicaSettings,
    StepSettings,
    TableDemonstrations,
    replay_record_specs,
    turn_goal_specs,
)
from penstock.nodes.learner.sampling import buffer_count
from penstock.program.graph import Board, Edge, Minibatch, Program, Rounds, Table
from penstock.program.plan import Plan
from penstock.program.rollout import table_specs
from penstock.replay.contents import TABLE_LIMIT, contents_bytes
from penstock.replay.limiter import RateLimiter
from penstock.replay.priorities import Ranking
from penstock.saved_runs.demonstrations import Demonstrations, KeptTable
from penstock.saved_runs.run_folder import RunFolder
from penstock.topologies.env_nodes import env_names
from penstock.topologies.learners import (
    activation_bytes,
    keeper_settings,
    learner_names,
    learner_nodes,
    part_rows,
    required,
    updater_settings,
)
from penstock.topologies.training import TopologyParts, wire

__all__ = ["TABLE_LIMIT", "build", "replayed", "step_settings", "table"]


def build(plan: Plan) -> Program:
    """The graph without lag, with rollouts taken in lane order. Collection and learning take turns."""
    return replayed(plan, max_lag=0, order="by_lane", niceness=0, reuse=1.0)


def replayed(
    plan: Plan, *, max_lag: int | None, order: Literal["by_lane", "by_arrival"], niceness: int, reuse: float
) -> Program:
    """Environment nodes write rollouts into a table, from which the learner samples.

    Several learners share each minibatch and step together. Each samples its part from a shard of its own: the rollouts
    of its share of the environment nodes. ``niceness`` is that of environment processes.
    """
    run, spec = plan.run, plan.learning.spec
    learners = learner_names(run.learners)
    team = "penstock.gradient_exchange.all_reduce:build" if run.learners > 1 else None
    update = required(plan, plan.learning.backend.replay)
    steps = [step_settings(plan, number, run.learners, update, team) for number in range(run.learners)]
    kinds = ("replay_learner", *("replica" for _ in learners[1:]))
    limits = limiter(plan, reuse)
    # A shard takes its part of the rows that collecting may be ahead.
    own = replace(limits, tolerance=limits.tolerance // run.learners)
    settings = (
        ReplayLearnerSettings(keeper_settings(plan), steps[0], limits, order),
        *(ReplicaSettings(own, plan.checkpoint) for own in steps[1:]),
    )
    together: tuple[Edge, ...] = ()
    if run.learners > 1:
        together = (
            # Gradients, and the state for learners that join later.
            Rounds("gradients", learners, spec.state),
            # The next goal of all learners: the last gradient step, the slots to sample from, running statistics.
            Board("goals", learners[0], learners[1:], turn_goal_specs(plan.num_workers, spec.policy.statistics())),
        )
    # In lock step no environment node is more than one turn ahead, and the capacity is at least two.
    ahead = 1 if order == "by_lane" else slots_ahead(plan, own, run.learners)
    topology = TopologyParts(
        rollouts=table(plan, learners, own, ahead=ahead, shards=run.learners),
        record=replay_record_specs(spec, run.num_envs, plan.num_workers, beside_return=plan.beside_return),
        learners=learner_nodes(plan, learners, kinds, settings, minibatch(plan, run.learners)),
        max_lag=max_lag,
        niceness=niceness,
        together=together,
    )
    return wire(plan, topology)


def slots_ahead(plan: Plan, limits: RateLimiter, shards: int = 1) -> int:
    """How many slots one environment node may be ahead of the learner if it is faster than all others.

    With several ``shards``, ``limits`` are those of one shard. The rows are counted like this:

    1. Each other shard may be ahead of its part by its tolerance and by one turn of its own nodes.
    2. So this shard may be behind its part by the sum of these rows. It may catch up in one go, and then get ahead by
       its own tolerance.
    3. At worst, a single node of this shard writes all these rows. The result is their number in slots.
    """
    rows = plan.run.num_envs * plan.num_steps
    ahead = shards * limits.tolerance + (shards - 1) * rows / shards
    return math.ceil(ahead * plan.num_workers / rows)


def table(plan: Plan, readers: tuple[str, ...], limits: RateLimiter, *, ahead: int, shards: int = 1) -> Table:
    """The table of rollouts. It holds ``capacity`` rows, and at least as many slots as a node may be ``ahead``.

    Of several ``shards``, ``limits`` are those of one.

    Raises:
        ConfigError: that takes more than ``table_bytes``.
    """
    run, spec = plan.run, plan.learning.spec
    _, kept = spec.replay()
    lanes = run.num_envs // plan.num_workers
    rollout = table_specs(
        plan.spaces,
        spec.row,
        plan.num_steps,
        lanes,
        same_step=plan.same_step,
        beside_return=plan.beside_return,
        carry=spec.policy.carry,
    )
    rows = run.num_envs * plan.num_steps
    # One slot more than the capacity, because the slot that is being filled cannot be sampled.
    slots = max(ahead, math.ceil(kept.capacity / rows)) + 1
    resident = run.table_on == "learners"
    large = contents_bytes(rollout, slots * plan.num_workers) > TABLE_LIMIT
    file = RunFolder(plan.folder).table_path if large and not resident else None
    ranking = None
    if kept.priorities is not None:
        config, sequences = plan.learning.algorithm_config, kept.sequences is not None
        ranking = Ranking(kept.priorities.alpha, spec.initial_priority, config, sequences)
    found = Table(
        "rollouts",
        writers=env_names(plan),
        readers=readers,
        arrays=rollout,
        slots=slots,
        limiter=limits,
        ranking=ranking,
        file=file,
        shards=shards,
        resident=resident,
    )
    if run.table_bytes is not None and (need := found.rings.nbytes) > run.table_bytes:
        raise ConfigError(
            f"--table_bytes {run.table_bytes} is too little: environment nodes may be {ahead} rollouts ahead, which "
            f"takes {need}"
        )
    return found


def limiter(plan: Plan, reuse: float) -> RateLimiter:
    """The rate limiter. Collection may be two turns ahead: one that is learned from, one that waits."""
    (schedule, _), rows = plan.learning.spec.replay(), plan.run.num_envs * plan.num_steps
    return RateLimiter(schedule.min_rows, schedule.updates_per_step, tolerance=2 * rows, reuse=reuse)


def step_settings(
    plan: Plan, learner: int, sharing: int, update: str, team: str | None, *, pull_after: int = 0
) -> StepSettings:
    """Settings of one learner's gradient steps; ``sharing`` learners share each minibatch."""
    updater = updater_settings(plan, learner, sharing, pull_after=pull_after)
    initial = plan.learning.initial
    return StepSettings(
        build=update,
        updater=updater,
        initial=initial,
        learners=plan.run.learners,
        team=team,
        work_limit_s=WORK_LIMIT_S,
        shards=sharing,
        demonstrations=_demonstrations(plan),
    )


def minibatch(plan: Plan, sharing: int) -> Minibatch:
    """Memory that one of ``sharing`` learners needs for its rows of a minibatch and for its networks' outputs."""
    part = part_rows(plan, sharing)
    sampled = part * plan.run.accumulate * sum(spec.nbytes for spec in plan.learning.spec.sampled(plan.spaces))
    rows = plan.learning.spec.rows(part, plan.num_steps)
    held = sampled * buffer_count(sampled, plan.run.device) + rows * activation_bytes(plan)
    return Minibatch(plan.learning.spec.rows(plan.learning.spec.schedule.mini_batch_size, plan.num_steps), held)


def _demonstrations(plan: Plan) -> tuple[DemonstrationSettings, ...]:
    if not plan.demonstrations:
        return ()
    cloning = plan.learning.spec.cloning
    each = list(zip(plan.demonstrations, shares(plan.run, alone=cloning is not None), strict=True))
    if cloning is None or not cloning.judging:
        return tuple(DemonstrationSettings(_source(plan, found), share) for found, share in each)
    # Held-out rows come last, those of all sources together: so a minibatch has a whole number of them.
    return (
        *(DemonstrationSettings(_source(plan, found), share * (1.0 - cloning.judging)) for found, share in each),
        *(
            DemonstrationSettings(_source(plan, found, judging=True), share * cloning.judging, held_out=True)
            for found, share in each
        ),
    )


def _source(plan: Plan, found: Demonstrations, *, judging: bool = False) -> DemonstrationSource:
    """Where demonstrations are; ``judging``: those of them that are held out."""
    spec = plan.learning.spec
    if isinstance(found, KeptTable):
        # Fields of acting that this algorithm does not learn from may be missing: Ape-X may learn from a table of DQN.
        row, carry = tuple(part for part in spec.row if part.name in spec.minibatch), spec.policy.carry
        slot = table_specs(plan.spaces, row, found.num_steps, found.num_envs, same_step=plan.same_step, carry=carry)
        return TableDemonstrations(found.checkpoint, slot)
    slot = table_specs(plan.spaces, (), plan.num_steps, 1, same_step=False)
    held_out = 0.0 if spec.cloning is None else spec.cloning.held_out
    return EpisodeDemonstrations(found.folder, plan.spaces, found.space, slot, held_out, judging)
