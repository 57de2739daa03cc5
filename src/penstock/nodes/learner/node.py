"""LearnerNode: turns rollouts into new parameters, commits its state, publishes.

It owns the schedule (which rows, in which minibatches, for how many epochs) and knows nothing of the mathematics:
that is the algorithm's, run by an updater.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.algorithm import AlgorithmSpec, Schedule
from penstock.config.schema import RunConfig
from penstock.errors import BadDataError, PenstockError
from penstock.experiments.checkpoints import load_checkpoint
from penstock.memory.action_log import Position
from penstock.metrics.report import Report, write_report
from penstock.node import Ports
from penstock.nodes.learner.batch import Assembly, Minibatches, minibatches, valid_rows
from penstock.nodes.learner.record import RETURN_WINDOW, VERDICT, begin_anew, follow, why_done
from penstock.registry import load
from penstock.types import Arrays, Spaces, Updater

__all__ = ["LearnerNode", "LearnerSettings"]

STEP_LIMIT_S = 0.05
"""How long one call of ``step`` may go on before the scheduler is given its turn."""

_NOTHING_KEPT = "nothing of it was kept; a smaller --lr, or rewards of a smaller scale, may help"


@dataclass(frozen=True)
class LearnerSettings:
    """What one LearnerNode learns."""

    learn: str
    """``module:build`` of the algorithm's pure functions."""
    initial: str
    """``module:init_state`` of the algorithm: the state to begin with, without torch."""
    algorithm_config: Any
    spec: AlgorithmSpec
    spaces: Spaces
    update: str
    """``module:build`` of the updater: eager, compiled or fused."""
    num_steps: int
    num_envs: int
    rollouts_per_batch: int
    assemble: Literal["by_lane", "by_arrival"]
    """``by_lane``: one rollout of every lane, all of the published version. ``by_arrival``: whatever came first."""
    max_policy_lag: int
    """Rollouts collected by a policy older than this many versions are dropped and counted."""
    run: RunConfig
    """When the run ends, what it saves and judges how often, its seed and device."""
    threads: int
    open_limit_s: float
    action_logs: tuple[str, ...]
    """The action log of each EnvNode, in lane order."""
    checkpoint: Path | None
    """Continue from this checkpoint."""


class LearnerNode:
    """Learns from stream ``rollouts`` and publishes on board ``policy``."""

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings
        self._work: Iterator[None] | None = None
        self._wake: Callable[[], bool] | None = None
        self._seconds_per_minibatch = 0.0

    def open(self, ports: Ports) -> None:
        """Build the updater, take the initial or the checkpoint's state, publish and commit it."""
        settings = self._settings
        if not isinstance(settings.spec.schedule, Schedule):
            raise PenstockError("a stream of rollouts is learned from in epochs")
        self._schedule = settings.spec.schedule
        self._ports = ports
        self._rollouts = ports.stream_reader("rollouts")
        self._policy = ports.board_writer("policy")
        self._record = ports.record("learner")
        self._logs = [ports.action_log(name) for name in settings.action_logs]
        self._checkpoints = ports.stream_writer("checkpoints")
        self._reports = ports.stream_writer("reports")
        if settings.run.eval_interval:
            self._requests = ports.stream_writer("evaluations")
            self._verdict = ports.board_reader("evaluation")
        with ports.busy("build the update", settings.open_limit_s):
            self._updater: Updater = load(settings.update)(
                settings.learn,
                settings.algorithm_config,
                settings.spec,
                settings.spaces,
                self._rollouts.arrays,
                settings.run.device,
                settings.threads,
            )
        self._assembly = Assembly(
            self._rollouts,
            settings.rollouts_per_batch,
            settings.assemble,
            settings.max_policy_lag,
            drop=lambda rows: ports.count("dropped", rows),
        )
        self._start()
        self._started = time.monotonic() - float(self._committed["elapsed_s"])
        self._work = self._learn()

    def _start(self) -> None:
        """Commit and publish what the run begins with: the initial state, or a checkpoint's."""
        settings = self._settings
        committed = self._record.current() if self._ports.former else None
        if committed is not None:
            self._take_over(committed.arrays)
            return
        new = self._record.begin()
        begin_anew(new)
        if settings.checkpoint is None:
            self._updater.load(load(settings.initial)(settings.spaces, settings.algorithm_config, settings.run.seed))
        else:
            saved = load_checkpoint(settings.checkpoint).arrays
            # Which slots an earlier life had consumed says nothing of this one's, nor how many workers it had.
            for name in new.keys() - {"consumed_slot", "consumed_sequence"}:
                new[name][...] = saved[name]
            self._updater.load({spec.name: saved[spec.name] for spec in settings.spec.state})
        self._take_state(new)
        self._commit(new)

    def _take_over(self, committed: Arrays) -> None:
        """Go on behind what an earlier life committed: what it used up is freed, the rest is learned anew."""
        self._updater.load({spec.name: committed[spec.name] for spec in self._settings.spec.state})
        used = committed["consumed_sequence"][committed["consumed_slot"] >= 0]
        self._rollouts.release_consumed(used.tolist())
        again = [self._rollouts.slot(index)["valid"][:-1] for index in self._rollouts.returned()]
        self._ports.count("redone", sum(int(valid.sum()) for valid in again))
        self._publish(committed)

    def ready(self) -> bool:
        """True while an update is under way, or once what the learner waits for is there."""
        return self._work is not None and (self._wake is None or self._wake())

    def step(self) -> None:
        """Go on learning."""
        if self._work is not None and next(self._work, self) is self:
            self._work = None
            self._ports.finished()

    def close(self) -> None:
        """Nothing outlives the process."""

    def _learn(self) -> Iterator[None]:
        """The whole life of a learner; yields at least every ``STEP_LIMIT_S``, and while it waits."""
        settings = self._settings
        if self._ports.former and int(self._committed["update"]) % settings.run.save_interval == 0:
            # The life before may have ended between a commit and its checkpoint; one that is there already stays.
            yield from self._checkpoint()
        while not self._done():
            slots = self._assembly.gather(int(self._committed["update"]))
            if slots is not None:
                with self._ports.span("update"):
                    yield from self._update_or_keep(slots)
            if self._ports.stopping():
                break
            if slots is None:
                yield from self._until(lambda: self._rollouts.ready() > 0 or self._ports.stopping())
                continue
            update = int(self._committed["update"])
            if update % settings.run.save_interval == 0 and not self._done():
                with self._ports.span("hand over checkpoint"):
                    yield from self._checkpoint()
            if settings.run.eval_interval and update % settings.run.eval_interval == 0:
                self._request_evaluation()
        yield from self._checkpoint()

    def _until(self, wake: Callable[[], bool]) -> Iterator[None]:
        """Give the turn away until ``wake`` is true."""
        self._wake = wake
        yield
        self._wake = None

    def _done(self) -> bool:
        """True once the run has reached its last timestep, its target, or stopped improving."""
        return why_done(self._committed, self._settings.run) is not None

    def _update_or_keep(self, slots: Sequence[int]) -> Iterator[None]:
        """Update; where that breaks the numbers, see that what was committed before is on the disk, then fail."""
        try:
            yield from self._update(slots)
        except BadDataError:
            yield from self._checkpoint()
            written = self._checkpoints
            yield from self._until(lambda: written.free() == written.slots or self._ports.stopping())
            raise

    def _update(self, slots: Sequence[int]) -> Iterator[None]:
        """One batch: targets, epochs of minibatches, statistics; then commit, publish, free, report.

        A run that is asked to stop abandons the batch: the last commit stays what it was.
        """
        settings, schedule = self._settings, self._schedule
        update = int(self._committed["update"])
        lags = [self._assembly.lag(slot, update) for slot in slots]
        with self._ports.span("targets"):
            self._updater.begin(slots, min(1.0, float(self._committed["steps"]) / settings.run.timesteps))
        rows = valid_rows(self._rollouts, slots)
        metrics: list[dict[str, float]] = []
        for epoch in range(schedule.epochs):
            with self._ports.span("permute"):
                permuted = minibatches(rows, schedule.mini_batch_size, (settings.run.seed, update, epoch))
            yield from self._epoch(permuted)
            if self._ports.stopping():
                return
            metrics.append(self._updater.metrics())
            self._refuse_bad_losses(metrics[-1], update + 1)
            if schedule.target_kl is not None and metrics[-1]["approx_kl"] > schedule.target_kl:
                break
        with self._ports.span("statistics"):
            self._updater.finish(slots)
        with self._ports.span("commit"):
            new = self._record.begin()
            follow(new, self._committed, self._rollouts, slots)
            new["elapsed_s"][...] = time.monotonic() - self._started
            self._take_verdict(new)
            self._take_state(new)
            learned = int(new["steps"] - self._committed["steps"])
            self._refuse_bad_state(new)
            self._commit(new)
        self._ports.count("learned", learned)
        for slot in slots:
            self._rollouts.release(slot)
        with self._ports.span("report"):
            self._report(metrics, float(np.mean(lags)))

    def _epoch(self, epoch: Minibatches) -> Iterator[None]:
        """Run the minibatches of one epoch, as many a call as fit ``STEP_LIMIT_S``."""
        done, count = 0, len(epoch.indices)
        while done < count and not self._ports.stopping():
            # The first minibatch of a run is taken alone: it shows how long one takes.
            fit = int(STEP_LIMIT_S / self._seconds_per_minibatch) if self._seconds_per_minibatch else 1
            part = slice(done, min(count, done + max(1, fit)))
            begun = time.monotonic()
            with self._ports.busy("minibatches", self._settings.open_limit_s):
                self._updater.minibatches(epoch.indices[part], epoch.weights[part])
            self._seconds_per_minibatch = (time.monotonic() - begun) / (part.stop - part.start)
            done = part.stop
            yield

    def _take_verdict(self, into: Arrays) -> None:
        """Take over what the evaluator has found since, if it has found anything in this life."""
        if self._settings.run.eval_interval:
            self._verdict.read({spec.name: into[spec.name] for spec in VERDICT})

    def _take_state(self, new: Arrays) -> None:
        for name, values in self._updater.state().items():
            new[name][...] = values

    def _refuse_bad_losses(self, metrics: Mapping[str, float], update: int) -> None:
        """Raise BadDataError if a loss or the gradient's norm is infinite or NaN."""
        for name, value in metrics.items():
            if (name.endswith("_loss") or name == "grad_norm") and not np.isfinite(value):
                raise BadDataError(f"update {update}: {name} is {value}; {_NOTHING_KEPT}")

    def _refuse_bad_state(self, new: Arrays) -> None:
        """Raise BadDataError if an update broke what the policy acts with; what was committed before it stands."""
        for spec in self._settings.spec.published():
            if not np.isfinite(new[spec.name]).all():
                raise BadDataError(
                    f"update {new['update']} made the parameters of {spec.name} infinite or NaN; {_NOTHING_KEPT}"
                )

    def _commit(self, new: Arrays) -> None:
        """Make ``new`` current, then publish. Slots are freed only after this."""
        self._record.commit(int(new["update"]))
        self._publish(new)

    def _publish(self, committed: Arrays) -> None:
        self._committed = committed
        published = {spec.name: committed[spec.name] for spec in self._settings.spec.published()}
        with self._ports.span("publish"):
            self._policy.publish(published, int(committed["update"]))

    def _report(self, metrics: Sequence[dict[str, float]], lag: float) -> None:
        """Tell the monitor; where it has not kept up, the report is dropped and counted."""
        committed = self._committed
        means = {name: float(np.mean([epoch[name] for epoch in metrics])) for name in metrics[0]}
        values = {f"loss/{name.removesuffix('_loss')}": mean for name, mean in means.items()}
        count = min(int(committed["episodes"]), RETURN_WINDOW)
        if count:
            values["rollout/return_mean"] = float(committed["returns"][-count:].mean())
            values["rollout/length_mean"] = float(committed["lengths"][-count:].mean())
        values["rollout/episodes"] = float(committed["episodes"])
        values["policy/lag"] = lag
        report = Report(int(committed["update"]), int(committed["steps"]), float(committed["elapsed_s"]), values)
        index = self._reports.claim(report.update)
        if index is None:
            self._ports.count("reports_dropped")
            return
        write_report(report, self._reports.slot(index))
        self._reports.push(index)

    def _checkpoint(self) -> Iterator[None]:
        """Hand the committed record, with the actions that restore each lane, to the checkpointer."""
        committed = self._committed
        index = self._checkpoints.claim(int(committed["update"]))
        while index is None:
            yield from self._until(lambda: self._checkpoints.free() > 0)
            index = self._checkpoints.claim(int(committed["update"]))
        slot = self._checkpoints.slot(index)
        for name, values in committed.items():
            slot[name][...] = values
        lanes = self._settings.num_envs // len(self._logs)
        for lane in range(self._settings.num_envs):
            position = Position(*map(int, committed["lane_position"][lane]))
            actions = self._logs[lane // lanes].content(lane % lanes, position)
            slot["actions_count"][lane] = -1 if actions is None else len(actions)
            if actions is not None:
                slot["actions"][lane, : len(actions)] = actions
        self._checkpoints.push(index)

    def _request_evaluation(self) -> None:
        """Ask the evaluator to look at the committed parameters; it may still be busy with earlier ones."""
        update = int(self._committed["update"])
        index = self._requests.claim(update)
        if index is None:
            self._ports.count("evaluations_dropped")
            return
        slot = self._requests.slot(index)
        for spec in self._settings.spec.published():
            slot[spec.name][...] = self._committed[spec.name]
        slot["update"][...] = update
        slot["steps"][...] = self._committed["steps"]
        slot["elapsed_s"][...] = self._committed["elapsed_s"]
        for spec in VERDICT:
            slot[spec.name][...] = self._committed[spec.name]
        # The only slot was free, so the evaluation before this one has told its verdict.
        self._take_verdict(slot)
        self._requests.push(index)
