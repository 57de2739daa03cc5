"""Keeper: commits, publishes and checkpoints what a learner has learned, and says when it is reported and evaluated.

The node that owns the run's state has a keeper: the learner, or the `ParameterNode`. A keeper learns nothing. Its
`Reports` and its `Verdicts` are files of their own.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.algorithm import AlgorithmSpec
from penstock.config.episode_metrics import episode_metrics
from penstock.config.schema import RunConfig
from penstock.errors import BadDataError
from penstock.memory.action_log import Position
from penstock.nodes.contract import Ports
from penstock.nodes.learner.losses import nothing_kept
from penstock.nodes.learner.record import VERDICT, begin_anew, carry_over, why_done
from penstock.nodes.learner.reports import Reports
from penstock.nodes.learner.row_shares import RowShares
from penstock.nodes.learner.verdicts import Verdicts
from penstock.nodes.learner.work import Work
from penstock.registry import load
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.saved_runs.pasts import write_past
from penstock.types import Array, Arrays, Spaces

__all__ = ["Keeper", "KeeperSettings"]

OF_ITS_OWN_RUN = {"consumed_slot", "consumed_sequence", "taken", "settled", "batch", "batch_settled", "batch_applied"}
"""Arrays of a record that a resumed run does not take from its checkpoint."""


@dataclass(frozen=True)
class KeeperSettings:
    """Which run a keeper serves."""

    initial: str
    """``module:init_state`` of the algorithm: makes the first state, without torch."""
    algorithm_config: Any
    spec: AlgorithmSpec
    spaces: Spaces
    run: RunConfig
    """When the run ends, how often it saves and evaluates, its seed."""
    action_logs: tuple[str, ...]
    """The action log of each EnvNode, in lane order."""
    checkpoint: Path | None
    """The run goes on from this checkpoint; ``None``: it is new."""
    resumed_update: int
    """The update of that checkpoint; 0 for a new run."""

    def sampled_rows(self) -> int:
        """Rows of one minibatch."""
        return self.spec.rows(self.spec.schedule.mini_batch_size, self.algorithm_config.num_steps)


class Keeper:
    """What the owner of the parameters does around updates: it commits, publishes, and hands on what is then due.

    Attributes:
        committed: the arrays of the last commit, as views.
    """

    committed: Arrays

    def __init__(self, settings: KeeperSettings, ports: Ports) -> None:
        self._settings = settings
        self._ports = ports
        self._published = settings.spec.published()
        self._policy = ports.board_writer("policy")
        self._record = ports.record("learner")
        self._logs = [ports.action_log(name) for name in settings.action_logs]
        self._checkpoints = ports.stream_writer("checkpoints")
        self._reports = Reports(ports, episode_metrics(settings.run.episode_metrics), self._row_shares())
        self._verdicts = Verdicts(settings.run, self._published, ports) if settings.run.eval_interval else None
        self._answered = 0
        """Requests for a checkpoint that this life has answered. A later life answers them once more, all by one."""
        self._started = time.monotonic()

    def former(self) -> Arrays | None:
        """The last commit of an earlier life of this node; ``None`` if there was none."""
        committed = self._record.current() if self._ports.former else None
        return None if committed is None else committed.arrays

    def take_over(self, committed: Arrays) -> None:
        """Go on after the last commit of an earlier life."""
        self.committed = committed
        self._reports.start(committed)
        self.publish()
        self._started = time.monotonic() - float(committed["elapsed_s"])

    def begin(self, **counts: Array | int) -> Arrays:
        """Commit and publish the first state: the initial one, or a checkpoint's. Returns the state.

        Args:
            counts: first values of arrays of the record that a checkpoint cannot give.
        """
        settings = self._settings
        new = self._record.begin()
        begin_anew(new)
        if settings.checkpoint is None:
            state = load(settings.initial)(settings.spaces, settings.algorithm_config, settings.run.seed)
        else:
            saved = load_checkpoint(settings.checkpoint).arrays
            # Slots, workers and learners of the run that wrote the checkpoint mean nothing in this one.
            for name in new.keys() - OF_ITS_OWN_RUN:
                if name in saved:
                    new[name][...] = saved[name]
            # Learners that apply their own gradients do not count ``applied``: it equals their gradient steps.
            if "applied" in new and "applied" not in saved:
                new["applied"][...] = saved.get("gradient_steps", 0)
            state = {spec.name: saved[spec.name] for spec in settings.spec.state}
        for name, values in {**state, **counts}.items():
            new[name][...] = values
        self._started = time.monotonic() - float(new["elapsed_s"])
        self._reports.start(new)
        self.make_current(new)
        self.publish()
        return self.state()

    def state(self) -> Arrays:
        """The committed state of the algorithm."""
        return {spec.name: self.committed[spec.name] for spec in self._settings.spec.state}

    def progress(self) -> float:
        """The share of the run's timesteps that is learned from, in [0, 1]. It drives schedules."""
        return min(1.0, float(self.committed["steps"]) / self._settings.run.timesteps)

    def next_record(self) -> Arrays:
        """The arrays of the next commit. The caller writes all of them."""
        return self._record.begin()

    def commit(self, new: Arrays, state: Mapping[str, Any]) -> None:
        """Write ``state`` into ``new``, make it current and publish the policy. Raises as `commit_unpublished`."""
        self.commit_unpublished(new, state)
        self.publish()

    def commit_unpublished(self, new: Arrays, state: Mapping[str, Any]) -> None:
        """Write ``state`` into ``new`` and make it current. Slots that it used up may be released only after this.

        Raises:
            BadDataError: published parameters are infinite or NaN. The commit before this one stands.
        """
        new["elapsed_s"][...] = time.monotonic() - self._started
        if self._verdicts is not None:
            self._verdicts.take(new)
        for name, values in state.items():
            new[name][...] = values
        for spec in self._published:
            if not np.isfinite(new[spec.name]).all():
                update = int(new["update"])
                kept = nothing_kept(self._settings.spec.policy)
                raise BadDataError(f"update {update} made the parameters of {spec.name} infinite or NaN; {kept}")
        self.make_current(new)

    def done(self) -> bool:
        """True once the run has reached its last timestep, its target, or stopped improving."""
        return why_done(self.committed, self._settings.run) is not None

    def after_commit(self) -> Work:
        """Do what the last commit makes due: ask for an evaluation, then hand over a checkpoint.

        In this order, because the checkpoint says whether an evaluation was asked for.
        """
        update, verdicts = int(self.committed["update"]), self._verdicts
        if verdicts is not None and verdicts.due(update):
            yield from verdicts.ask(self.committed)
            yield from self._commit_verdict(verdicts)
        due, wanted = self._checkpoint_due(update), self._ports.checkpoints_wanted()
        # The checkpointer may hold a slot of this stream for as long as it takes to write a large table. A checkpoint
        # that a deputy wants does not wait for a free slot: it is due again after the next commit.
        has_room = due or self._checkpoints.free() > 0
        if (due or wanted != self._answered) and has_room and not self.done():
            self._answered = wanted
            with self._ports.span("hand over checkpoint"):
                yield from self.checkpoint(passing=not self._lasting(update))

    def after_takeover(self) -> Work:
        """As `after_commit`, for a life that takes over: the one before may have died right after a commit.

        What exists already stays: a checkpoint, a verdict, a report. A report of this life has no losses.
        """
        update, verdicts = int(self.committed["update"]), self._verdicts
        # Commits of dropped rollouts, and those within a batch, leave the number of the update as it was.
        learned = update > self._settings.resumed_update and not self._ports.stopping()
        if learned and verdicts is not None and verdicts.due(update):
            if not verdicts.take_up(update):
                yield from verdicts.ask(self.committed)
            yield from self._commit_verdict(verdicts)
        if self._checkpoint_due(update) and not self.done():
            yield from self.checkpoint(passing=not self._lasting(update))
        if learned and not self.reported():
            self.report({})

    def saving_if_bad(self, work: Work) -> Work:
        """Do ``work``. If it raises BadDataError, write the last commit to the disk first."""
        try:
            yield from work
        except BadDataError:
            yield from self.checkpoint()
            yield from self.checkpoints_written()
            raise

    def checkpoints_written(self) -> Work:
        """Wait until every checkpoint handed over is on the disk, or the run stops."""
        written, stopping = self._checkpoints, self._ports.stopping
        yield lambda: written.free() == written.slots or stopping()

    def reported(self) -> bool:
        """True while a report of the last commit is with the monitor, as `Reports.has` says."""
        return self._reports.has(int(self.committed["update"]))

    def report(self, metrics: Mapping[str, float]) -> None:
        """Report the last commit to the monitor, and the metrics of its update."""
        self._reports.add(self.committed, metrics)

    def end(self) -> Work:
        """Hand over the last checkpoint. Then wait until there is a slot for the last report, or the run stops."""
        yield from self.checkpoint()
        yield from self._reports.end()

    def checkpoint(self, *, passing: bool = False) -> Work:
        """Hand the committed record, with what restores each lane, to the checkpointer.

        Args:
            passing: ``save_interval`` does not ask for it. It is removed once there is a newer one, unless it is the
                best, or its evaluation still goes on.
        """
        committed = self.committed
        index = self._checkpoints.claim(int(committed["update"]))
        while index is None:
            yield lambda: self._checkpoints.free() > 0
            index = self._checkpoints.claim(int(committed["update"]))
        slot = self._checkpoints.slot(index)
        for name, values in committed.items():
            slot[name][...] = values
        num_envs = self._settings.run.num_envs
        lanes = num_envs // len(self._logs)
        for lane in range(num_envs):
            position = Position(*map(int, committed["lane_position"][lane]))
            write_past(slot, lane, self._logs[lane // lanes].past(lane % lanes, position))
        slot["evaluation_asked"][...] = self._evaluation_asked(int(committed["update"]))
        slot["passing"][...] = passing
        self._checkpoints.push(index)

    def _lasting(self, update: int) -> bool:
        return update % self._settings.run.save_interval == 0

    def _evaluation_asked(self, update: int) -> bool:
        return self._verdicts is not None and self._verdicts.asked == update

    def _checkpoint_due(self, update: int) -> bool:
        """True if ``save_interval`` asks for a checkpoint, or an evaluation is under way: it may find the best one."""
        return self._lasting(update) or self._evaluation_asked(update)

    def make_current(self, new: Arrays) -> None:
        """Make ``new`` current without publishing.

        Records are numbered one by one. So a reader sees whether the record that it copied is still current.
        """
        self._record.commit(self._record.number() + 1)
        self.committed = new

    def publish(self) -> None:
        """Publish the committed policy. Rings the bells of nodes that wait for it, or for counters noted before."""
        committed = self.committed
        published = {spec.name: committed[spec.name] for spec in self._published}
        with self._ports.span("publish"):
            self._policy.publish(published, int(committed["update"]))

    def _row_shares(self) -> RowShares | None:
        run, processes = self._settings.run, len(self._logs)
        # In lock step each process gives a rollout in each turn.
        if processes <= 1 or run.sync_mode == "blocking":
            return None
        return RowShares(processes, run.num_envs * self._settings.algorithm_config.num_steps)

    def _commit_verdict(self, verdicts: Verdicts) -> Work:
        """Wait for the verdict on the last commit, and write it into the record. No effect unless it is awaited."""
        if not verdicts.awaited:
            return
        yield from verdicts.wait(int(self.committed["update"]))
        judged = self._record.begin()
        carry_over(judged, self.committed)
        verdicts.take(judged)
        # An earlier life may have committed it. A second commit would count as progress: a learner whose every life
        # fails would be started for ever.
        if any(judged[spec.name] != self.committed[spec.name] for spec in VERDICT):
            self.make_current(judged)
