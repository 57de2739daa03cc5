"""GradientSteps: samples minibatches from a table and takes a gradient step by each, alone or with other learners.

It knows which step comes next. It does not know how many are due, nor what an update computes.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.errors import BadDataError
from penstock.kernels.steps import StepKeys
from penstock.memory.table import Table
from penstock.nodes.contract import STEP_LIMIT_S, Ports
from penstock.nodes.learner.demonstrations import DemonstrationSettings, WithDemonstrations
from penstock.nodes.learner.goals import TurnGoal
from penstock.nodes.learner.losses import nothing_kept
from penstock.nodes.learner.resets import Resets
from penstock.nodes.learner.sampling import SampleSpec, sampling
from penstock.nodes.learner.work import Work
from penstock.registry import load
from penstock.replay.sampler import RowSampler, Sampler, SequenceSampler
from penstock.replay.shards import ShardSampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays
from penstock.updates.contract import ReplayUpdater, SamplingUpdater
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import DissolvedError, RankTeam, ShardTeam, Team

__all__ = ["GradientSteps", "StepSettings"]


@dataclass(frozen=True)
class StepSettings:
    """How one learner takes gradient steps."""

    build: str
    """``module:build_replay`` of the updater, or ``module:build_follower`` if it hands gradients on."""
    updater: UpdaterSettings
    """Its schedule's minibatch is this learner's share."""
    initial: str
    """``module:init_state`` of the algorithm: makes the first state, without torch."""
    learners: int
    """Number of learners; ``updater.learner`` is the index of this one."""
    team: str | None
    """``module:build`` of the team: ``(ports, updater settings, learners) -> Team``. ``None``: the learner is alone."""
    work_limit_s: float
    shards: int = 1
    """Number of shards of the table. If there are several, each learner samples its own one."""
    spread: bool = False
    """Learners are on several machines. Then all give up a turn if one is lost, and home keeps all priorities."""
    demonstrations: tuple[DemonstrationSettings, ...] = ()
    """Demonstrations in each minibatch, of each source."""

    @property
    def sampled(self) -> int:
        """Rows or sequences that this learner samples for one gradient step."""
        schedule, _ = self.updater.spec.replay()
        return schedule.mini_batch_size * self.updater.accumulate


class GradientSteps:
    """One learner's sampler, its updater, and its team.

    Attributes:
        done: gradient steps of this learner, counted on from those of its first state.
        table: rows are sampled from it: the whole table, or this learner's shard.
        tree: the priorities of its rows, if they have any.
        updater: holds the state.
    """

    def __init__(self, settings: StepSettings, ports: Ports) -> None:
        spec = settings.updater.spec
        _, self._table_spec = spec.replay()
        self._settings = settings
        self._ports = ports
        shard = settings.updater.learner % settings.shards
        self._tables = [ports.table("rollouts").shard(number, settings.shards) for number in range(settings.shards)]
        self.table = self._tables[shard]
        self._trees = ports.priorities("rollouts")
        self.tree = None if self._trees is None else self._trees.shard(shard)
        self._own = slice(shard * self.table.writers, (shard + 1) * self.table.writers)
        """The writers of this learner's rows."""
        sampler = self._sampler(self.table, self.tree)
        self._shard: ShardSampler | None = None
        if settings.shards > 1:
            sampler = self._shard = ShardSampler(sampler, self.table, self.tree)
        if settings.demonstrations:
            parts, demonstrated = settings.demonstrations, []
            for demonstrations in parts:
                with ports.busy("load demonstrations", settings.work_limit_s):
                    demonstrated.append(self._sampler(demonstrations.source.load()))
            shares, held_out = [one.share for one in parts], [one.held_out for one in parts]
            sampler = WithDemonstrations(sampler, demonstrated, shares, held_out)
        self._team: Team | None = None
        if settings.team is not None:
            self._team = load(settings.team)(ports, settings.updater, settings.learners)
        with ports.busy("build the update", settings.work_limit_s):
            self.updater: ReplayUpdater = load(settings.build)(settings.updater, self._team)
        size = settings.sampled
        self._many: SamplingUpdater | None = None
        """The updater, if it samples for itself."""
        if isinstance(self.updater, SamplingUpdater) and self._team is None and isinstance(sampler, Sampler):
            self._many = self.updater
            alpha = self._table_spec.priorities.alpha if self._table_spec.priorities is not None else 1.0
            places = {name: np.zeros(size, np.int64) for name in ("index", "stamp")}
            self._minibatches = self.updater.sample_from(sampler, places, self.tree, alpha)
        self._sampling = sampling(sampler, self.updater.buffers, size, device=settings.updater.device)
        self._resets = Resets(settings.initial, settings.updater)
        self.done = 0
        self._former: list[tuple[int, Array, Array, Array]] = []
        """Priorities that this turn has changed: the shard, rows, their stamps, the priorities before."""
        self._largest = np.zeros(settings.shards)
        """The largest priority of each shard before this turn."""

    def _sampler(self, table: Table, tree: SumTree | None = None) -> RowSampler:
        sequences = self._table_spec.sequences
        sampler = Sampler(
            table,
            table.arrays["valid"].shape[2],
            tuple(name for name, _ in self._settings.updater.spaces.obs),
            n_step=self._table_spec.n_step,
            gamma=self._table_spec.gamma,
            stack=self._settings.updater.spaces.stacks(),
            reward_limit=self._table_spec.reward_limit,
            tree=tree,
        )
        return sampler if sequences is None else SequenceSampler(sampler, sequences.burn_in)

    def start(self, state: Mapping[str, Array]) -> None:
        """Begin with this state, or with the state of the other learners if they are ahead."""
        state = {part.name: state[part.name] for part in self._settings.updater.spec.state}
        if self._team is not None:
            with self._ports.busy("wait for the other learners", self._settings.work_limit_s):
                state = self._team.join(state) or state
        self.updater.load(state)
        self.done = int(state["gradient_steps"])

    def until(self, goal: TurnGoal) -> Work:
        """Take gradient steps until the goal is reached, or the run stops. Learners with shards end a turn together.

        Raises:
            ResourceError: no row can be sampled.
            BadDataError: a priority is infinite or NaN.
            DissolvedError: a learner on another machine is lost.
        """
        self._former.clear()
        if self._trees is not None:
            self._largest = self._trees.largest()
        priorities, deadline = self._table_spec.priorities, time.monotonic() + STEP_LIMIT_S
        beta = 0.0 if priorities is None else priorities.beta + goal.progress * (1.0 - priorities.beta)
        if self._many is not None:
            yield from self._until(goal, beta, self._many)
            return
        begun = self.done
        while self.done < goal.last and not self._ports.stopping():
            if not self.may_begin():
                yield lambda: self.lost() or self.may_begin() or self._ports.stopping()
                if self.lost():
                    raise DissolvedError("a learner that takes part in each gradient step is lost")
                continue
            wanted = SampleSpec(self._key(self.done), goal.taken[self._own], beta)
            then = wanted._replace(key=self._key(self.done + 1)) if self.done + 1 < goal.last else None
            sampled = self._sampling.take(wanted, then)
            with self._ports.busy("gradient step", self._settings.work_limit_s):
                self._reset()
                if self._shard is not None and isinstance(self._team, ShardTeam):
                    self._team.weigh(self._shard.factor(wanted.key))
                self._rank(sampled.places, self.updater.learn(sampled.rows, goal.progress))
            self.done += 1
            if self._team is not None:
                self._team.end()
            if time.monotonic() > deadline:
                yield None
                deadline = time.monotonic() + STEP_LIMIT_S
        if self.done > begun and isinstance(self._team, ShardTeam) and not self._ports.stopping():
            # Wait until all learners have ranked their rows. New rows get the largest priority so far, which must not
            # depend on how fast each learner is.
            self._team.settle(self.updater)

    def _until(self, goal: TurnGoal, beta: float, many: SamplingUpdater) -> Work:
        """As `until`, with an updater that samples for itself."""
        self._minibatches.begin(goal.taken)
        while self.done < goal.last and not self._ports.stopping():
            seed, number = self._key(self.done)
            with self._ports.busy("gradient step", self._settings.work_limit_s):
                self._reset()
                most = self._resets.until(self.done, goal.last)
                try:
                    self.done += many.learn_many(StepKeys(seed, number, beta), most, goal.progress)
                except BadDataError as error:
                    raise BadDataError(f"{error}; {nothing_kept(self._settings.updater.spec.policy)}") from None
            if self.done < goal.last:
                yield None

    def _reset(self) -> None:
        """Let the networks begin anew if the next gradient step is the first one behind a reset.

        All learners of a team count the same steps, so all have the same networks again.
        """
        if self._resets.due(self.done):
            self.updater.load(self._resets.state(self.done))

    def take_back(self) -> None:
        """Undo this turn's changes of priorities. No other process may change priorities meanwhile.

        Rows that were lost meanwhile with their machine keep priority 0: nobody may sample them any more.
        """
        if self._trees is not None:
            self._sampling.settle()
            if self._many is not None:
                self._minibatches.take_back()
            for shard, rows, stamps, ranks in reversed(self._former):
                there = _are_there(self._tables[shard], rows, stamps)
                self._trees.shard(shard).update(rows[there], stamps[there], ranks[there])
            self._trees.put_largest(self._largest)
            self._former.clear()

    def may_begin(self) -> bool:
        """True if a gradient step may begin. Learners that wait may join, and newer parameters are taken."""
        return self._team is None or self._team.begin(self.updater)

    def attend(self) -> None:
        """Between turns: let learners that wait join, and take newer parameters."""
        self.may_begin()

    def lost(self) -> bool:
        """True once a learner on another machine is lost: then no step goes on, and all meet anew."""
        return self._settings.spread and isinstance(self._team, ShardTeam) and self._team.lost()

    def meeting(self) -> int:
        """The number of the learners' present meeting."""
        return self._team.meeting() if isinstance(self._team, ShardTeam) else 0

    def sent(self) -> int:
        """Bytes of gradients that this learner has sent to others since the last call."""
        return 0 if self._team is None else self._team.sent()

    def give_up(self, state: Mapping[str, Array]) -> None:
        """Give up the turn: leave, meet the other learners anew, and begin with this state or with theirs."""
        self.updater.metrics()
        self._sampling.settle()
        self.leave()
        self.start(state)

    def leave(self) -> None:
        """Leave the team. The other learners go on without this one."""
        if self._team is not None:
            self._team.leave()

    def _key(self, step: int) -> tuple[int, int]:
        """The sampling key of a step. Each learner has keys of its own, so it samples other rows."""
        updater = self._settings.updater
        return updater.seed, step * self._settings.learners + updater.learner

    def _rank(self, places: Arrays, per_row: Arrays) -> None:
        """Give the rows of the last step new priorities, unless they were overwritten since they were sampled."""
        priorities = self._table_spec.priorities
        if self._trees is not None and self.tree is not None and priorities is not None:
            ranks = np.power(per_row["priority"].astype(np.float64), priorities.alpha)
            if not np.isfinite(ranks).all():
                kept = nothing_kept(self._settings.updater.spec.policy)
                raise BadDataError(f"gradient step {self.done + 1}: a priority is infinite or NaN; {kept}")
            rows, stamps = places["index"].copy(), places["stamp"].copy()
            self._sampling.settle()
            for shard, own in self._ranked(np.stack([rows, stamps, self.tree.read(rows), ranks])):
                changed, tags = (own[number].astype(np.int64) for number in range(2))
                self._former.append((shard, changed, tags, own[2]))
                self._trees.shard(shard).update(changed, tags, own[3])
            if isinstance(self._team, RankTeam):
                self._team.ranked(rows, stamps, ranks)

    def _ranked(self, own: Array) -> list[tuple[int, Array]]:
        """The shards that this learner ranks after a step, each with rows, stamps, old and new priorities: ``[4, m]``.

        This is its own shard. If learners are on several machines, learner 0 ranks the shards of all: so home has all
        priorities, and the next life of another learner begins with them.
        """
        learner = self._settings.updater.learner
        if not (self._settings.spread and isinstance(self._team, ShardTeam)):
            return [(learner % self._settings.shards, own)]
        found = [(shard, part.reshape(own.shape)) for shard, part in enumerate(self._team.gather(own.reshape(-1)))]
        return found if learner == 0 else [found[learner]]


def _are_there(table: Table, rows: Array, stamps: Array) -> Array:
    """Which of these rows, with the sequences of their slots, can still be sampled."""
    firsts = np.array([table.first(writer) for writer in range(table.writers)])
    there: Array = stamps >= firsts[rows // (table.slots * table.arrays["valid"][0].size)]
    return there
