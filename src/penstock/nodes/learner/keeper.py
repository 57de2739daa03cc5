"""Keeper: what a learner has learned, kept: committed, published, checkpointed, judged and reported.

Whoever owns the run's state has one: a learner, or the node that applies many learners' gradients. It learns nothing.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.algorithm import AlgorithmSpec
from penstock.config.schema import RunConfig
from penstock.errors import BadDataError
from penstock.experiments.checkpoints import load_checkpoint
from penstock.memory.action_log import Position
from penstock.metrics.report import SHAPED_RETURN, Report, report_sequence, write_report
from penstock.nodes.contract import Ports
from penstock.nodes.learner.record import RETURN_WINDOW, VERDICT, begin_anew, why_done
from penstock.nodes.learner.work import Work
from penstock.registry import load
from penstock.types import Array, Arrays, Spaces

__all__ = ["NOTHING_KEPT", "Keeper", "KeeperSettings"]

NOTHING_KEPT = "nothing of it was kept; a smaller --lr, or rewards of a smaller scale, may help"


@dataclass(frozen=True)
class KeeperSettings:
    """What is kept of which run."""

    initial: str
    """``module:init_state`` of the algorithm: the state to begin with, without torch."""
    algorithm_config: Any
    spec: AlgorithmSpec
    spaces: Spaces
    run: RunConfig
    """When the run ends, what it saves and judges how often, its seed."""
    action_logs: tuple[str, ...]
    """The action log of each EnvNode, in lane order."""
    checkpoint: Path | None
    """Continue from this checkpoint."""


class Keeper:
    """The owner's end of everything that survives an update.

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
        self._reports = ports.stream_writer("reports")
        if settings.run.eval_interval:
            self._requests = ports.stream_writer("evaluations")
            self._verdict = ports.board_reader("evaluation")
        self._asked = -1
        """The update whose evaluation was asked for last."""
        self._started = time.monotonic()

    def former(self) -> Arrays | None:
        """What an earlier life of this node committed last; ``None``: this is the first that did."""
        committed = self._record.current() if self._ports.former else None
        return None if committed is None else committed.arrays

    def take_over(self, committed: Arrays) -> None:
        """Go on behind what an earlier life committed."""
        self.committed = committed
        self.publish()
        self._started = time.monotonic() - float(committed["elapsed_s"])

    def begin(self, **counts: Array | int) -> Arrays:
        """Commit and publish what the run begins with: the initial state, or a checkpoint's. Returns the state.

        Args:
            counts: what arrays of the record begin with that no checkpoint could say.
        """
        settings = self._settings
        new = self._record.begin()
        begin_anew(new)
        if settings.checkpoint is None:
            state = load(settings.initial)(settings.spaces, settings.algorithm_config, settings.run.seed)
        else:
            saved = load_checkpoint(settings.checkpoint).arrays
            # Which slots an earlier life had consumed says nothing of this one's, nor how many workers it had.
            for name in new.keys() - {"consumed_slot", "consumed_sequence", "taken", "settled"}:
                if name in saved:
                    new[name][...] = saved[name]
            # Learners that step by themselves do not count gradients that are applied: a step is one.
            if "applied" in new and "applied" not in saved:
                new["applied"][...] = saved["gradient_steps"]
            state = {spec.name: saved[spec.name] for spec in settings.spec.state}
        for name, values in {**state, **counts}.items():
            new[name][...] = values
        self._started = time.monotonic() - float(new["elapsed_s"])
        self.enter(new)
        self.publish()
        return {spec.name: self.committed[spec.name] for spec in settings.spec.state}

    def next(self) -> Arrays:
        """The arrays of the next commit, to be written whole."""
        return self._record.begin()

    def commit(self, new: Arrays, state: Mapping[str, Any]) -> None:
        """Make ``new`` with ``state`` in it current, then publish the policy; as `commit_quietly`."""
        self.commit_quietly(new, state)
        self.publish()

    def commit_quietly(self, new: Arrays, state: Mapping[str, Any]) -> None:
        """Make ``new`` with ``state`` in it current. What it used up may be given back only after this.

        Raises:
            BadDataError: an update broke what the policy acts with; what was committed before it stands.
        """
        new["elapsed_s"][...] = time.monotonic() - self._started
        self._take_verdict(new)
        for name, values in state.items():
            new[name][...] = values
        for spec in self._published:
            if not np.isfinite(new[spec.name]).all():
                update = int(new["update"])
                raise BadDataError(
                    f"update {update} made the parameters of {spec.name} infinite or NaN; {NOTHING_KEPT}"
                )
        self.enter(new)

    def done(self) -> bool:
        """True once the run has reached its last timestep, its target, or stopped improving."""
        return why_done(self.committed, self._settings.run) is not None

    def behind_commit(self) -> Work:
        """What the last commit makes due: an evaluation, a checkpoint, which says whether there is one of it."""
        run, update = self._settings.run, int(self.committed["update"])
        if self._evaluation_due():
            self._request_evaluation()
        if update % run.save_interval == 0 and not self.done():
            with self._ports.span("hand over checkpoint"):
                yield from self.checkpoint()

    def again_behind_commit(self) -> Work:
        """For a life that takes over: the one before may have ended between a commit and what that made due.

        What is there already stays: a checkpoint, a line of the log (whose losses this life does not know), a verdict.
        """
        update = int(self.committed["update"])
        # The first record is what the run began with: nobody learned it.
        learned = self._record.number() != 0 and not self._ports.stopping()
        if learned and self._evaluation_due():
            if self._verdict.version() < update and update not in self._requests.written():
                self._request_evaluation()
            else:
                self._asked = update
        if update % self._settings.run.save_interval == 0 and not self.done():
            yield from self.checkpoint()
        if learned and not self.reported():
            self.report({})

    def or_keep(self, work: Work) -> Work:
        """``work``; where it breaks the numbers, what was committed before is on the disk first, then it fails."""
        try:
            yield from work
        except BadDataError:
            yield from self.checkpoint()
            yield from self.written_down()
            raise

    def written_down(self) -> Work:
        """Waits until every checkpoint handed over is on the disk, or the run stops."""
        written, stopping = self._checkpoints, self._ports.stopping
        yield lambda: written.free() == written.slots or stopping()

    def reported(self) -> bool:
        """True if the monitor was told of the last commit's update, in whichever life."""
        return report_sequence(int(self.committed["update"])) in self._reports.written()

    def report(self, values: dict[str, float]) -> None:
        """Tell the monitor of the last commit; where it has not kept up, the report is dropped and counted."""
        committed = self.committed
        count = min(int(committed["episodes"]), RETURN_WINDOW)
        if count:
            values["rollout/return_mean"] = float(committed["returns"][-count:].mean())
            if "shaped_returns" in committed:
                values[SHAPED_RETURN] = float(committed["shaped_returns"][-count:].mean())
            values["rollout/length_mean"] = float(committed["lengths"][-count:].mean())
        values["rollout/episodes"] = float(committed["episodes"])
        report = Report(int(committed["update"]), int(committed["steps"]), float(committed["elapsed_s"]), values)
        index = self._reports.claim(report_sequence(report.update))
        if index is None:
            self._ports.count("reports_dropped")
            return
        write_report(report, self._reports.slot(index))
        self._reports.push(index)

    def checkpoint(self) -> Work:
        """Hand the committed record, with the actions that restore each lane, to the checkpointer."""
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
            actions = self._logs[lane // lanes].content(lane % lanes, position)
            slot["actions_count"][lane] = -1 if actions is None else len(actions)
            if actions is not None:
                slot["actions"][lane, : len(actions)] = actions
        slot["evaluation_asked"][...] = self._asked == int(committed["update"])
        self._checkpoints.push(index)

    def enter(self, new: Arrays) -> None:
        """Make ``new`` current where nothing in it has changed that would have to be published.

        Records are numbered one by one, so that who reads one knows whether it still stands.
        """
        self._record.commit(self._record.number() + 1)
        self.committed = new

    def publish(self) -> None:
        """Let whoever acts have the committed policy; rings for whoever waits for it, or for what was noted before."""
        committed = self.committed
        published = {spec.name: committed[spec.name] for spec in self._published}
        with self._ports.span("publish"):
            self._policy.publish(published, int(committed["update"]))

    def _take_verdict(self, into: Arrays) -> None:
        """Take over what the evaluator has found since, if it has found anything in this life."""
        if self._settings.run.eval_interval:
            self._verdict.read({spec.name: into[spec.name] for spec in VERDICT})

    def _evaluation_due(self) -> bool:
        interval = self._settings.run.eval_interval
        return interval > 0 and int(self.committed["update"]) % interval == 0

    def _request_evaluation(self) -> None:
        """Ask the evaluator to look at the committed parameters; it may still be busy with earlier ones."""
        committed, update = self.committed, int(self.committed["update"])
        index = self._requests.claim(update)
        if index is None:
            self._ports.count("evaluations_dropped")
            return
        slot = self._requests.slot(index)
        for spec in self._published:
            slot[spec.name][...] = committed[spec.name]
        slot["update"][...] = update
        slot["steps"][...] = committed["steps"]
        slot["elapsed_s"][...] = committed["elapsed_s"]
        for spec in VERDICT:
            slot[spec.name][...] = committed[spec.name]
        # The only slot was free, so the evaluation before this one has told its verdict.
        self._take_verdict(slot)
        self._requests.push(index)
        self._asked = update
