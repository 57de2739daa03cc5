"""ParameterNode: applies the gradients that learners hand on, each exactly once; commits and publishes the parameters.

It owns the run's state. The new parameters and the count of settled gradients are one commit. It computes no gradient
itself and does not wait for any particular learner.
"""

import time
from dataclasses import dataclass

from penstock.nodes.contract import STEP_LIMIT_S, Ports
from penstock.nodes.learner.intake import Intake, refill, rows_to_sample
from penstock.nodes.learner.keeper import Keeper, KeeperSettings
from penstock.nodes.learner.losses import lag_values
from penstock.nodes.learner.record import fill_learned_from_table
from penstock.nodes.learner.settling import Settling
from penstock.nodes.learner.work import Work, WorkingNode
from penstock.registry import load
from penstock.replay.limiter import RateLimiter
from penstock.types import Arrays
from penstock.updates.contract import Applier
from penstock.updates.settings import UpdaterSettings

__all__ = ["ParameterNode", "ParameterSettings"]


@dataclass(frozen=True)
class ParameterSettings:
    """What one ParameterNode applies and keeps."""

    keeper: KeeperSettings
    build: str
    """``module:build_applier`` of the applier; eager or compiled."""
    updater: UpdaterSettings
    limiter: RateLimiter
    max_gradient_lag: float
    """A gradient is dropped and counted if its parameters are older than this many gradient steps."""
    work_limit_s: float
    owner: str | None = None
    """``module:build_owner`` of a rule by which learners apply their gradients themselves: ``(ports, updater settings,
    applier) -> Applier``. ``None``: this node applies them."""


class ParameterNode(WorkingNode):
    """Takes gradients from stream ``gradients``, and publishes on boards ``parameters`` and ``policy``."""

    def __init__(self, settings: ParameterSettings) -> None:
        self._schedule, _ = settings.keeper.spec.replay()
        self._settings = settings
        self._policy_lags: list[int] = []
        self._told_paid = 0
        """The value of ``paid`` when the policy was last published."""

    def _begin(self, ports: Ports) -> Work:
        """Build the applier; take the initial or the checkpoint's state, commit and publish it."""
        settings = self._settings
        self._table = ports.table("rollouts")
        self._gradients = ports.stream_reader("gradients")
        self._parameters = ports.board_writer("parameters")
        self._keeper = Keeper(settings.keeper, ports)
        with ports.busy("build the update", settings.work_limit_s):
            self._applier: Applier = load(settings.build)(settings.updater)
            if settings.owner is not None:
                self._applier = load(settings.owner)(ports, settings.updater, self._applier)
        self._settling = Settling(
            self._applier, settings.updater, settings.max_gradient_lag, ports, settings.work_limit_s
        )
        self._intake = Intake(self._table, "by_arrival")
        height, lanes = map(int, self._table.arrays["valid"].shape[1:])
        self._rollout_rows = (height - 1) * lanes
        committed = self._keeper.former()
        if committed is None:
            with ports.busy("refill the table", settings.work_limit_s):
                taken = refill(self._table, ports.priorities("rollouts"), settings.keeper.checkpoint)
            # If the table was lost, steps that were due are left out. They would hold back the rows that they need.
            enough = rows_to_sample(self._table, taken) >= self._schedule.min_rows
            owed: dict[str, int] = {} if enough else {"owed": 0}
            self._applier.load(self._keeper.begin(taken=taken, settled=0, **owed))
        else:
            self._keeper.take_over(committed)
            self._applier.load(self._keeper.state())
        self._told_paid = self._note_paid(self._keeper.committed)
        self._publish()
        return self._keep()

    def _keep(self) -> Work:
        """The whole life of the node. Yields at least every ``STEP_LIMIT_S``, and while it waits."""
        keeper, ports = self._keeper, self._ports
        if ports.former:
            yield from keeper.after_takeover()
        while not ports.stopping() and not (keeper.done() and self._owed() == 0):
            if self._new() > 0:
                self._take_rollouts()
                yield from keeper.after_commit()
            elif self._applicable():
                with ports.span("gradients"):
                    yield from keeper.saving_if_bad(self._apply())
            else:
                yield lambda: self._new() > 0 or self._applicable() or ports.stopping()
        if keeper.done() and not keeper.reported():
            keeper.report(self._found())
        yield from keeper.end()

    def _new(self) -> int:
        return 0 if self._keeper.done() else self._intake.waiting(self._keeper.committed["taken"])

    def _owed(self) -> int:
        return int(self._keeper.committed["owed"])

    def _applicable(self) -> bool:
        return self._wanted(self._keeper.committed) and self._gradients.ready() > 0

    def _wanted(self, record: Arrays) -> bool:
        """True if a gradient step is due, or a spare one may be taken."""
        return int(record["owed"]) > 0 or self._settings.limiter.spare(int(record["steps"]), int(record["applied"])) > 0

    def _take_rollouts(self) -> None:
        """Take note of new rollouts. Their rows make gradient steps due."""
        keeper = self._keeper
        committed = keeper.committed
        taken = committed["taken"].copy()
        slots = self._intake.take(taken)
        version = int(committed["update"])
        self._policy_lags = [version - int(slot["policy_version"][0, 0]) for slot in slots]
        new = keeper.next_record()
        fill_learned_from_table(new, committed, slots)
        new["taken"][...] = taken
        if rows_to_sample(self._table, taken) >= self._schedule.min_rows:
            limiter = self._settings.limiter
            new["owed"] += limiter.due(int(new["steps"])) - limiter.due(int(committed["steps"]))
        keeper.commit_unpublished(new, self._applier.state())
        self._told_paid = self._note_paid(new)
        keeper.publish()
        # The gradient steps of the last rollouts are still to come. They are reported at the end.
        if not keeper.done():
            keeper.report(self._found())

    def _found(self) -> dict[str, float]:
        """The metrics of all gradients since the last report."""
        committed, policy_lags = self._keeper.committed, self._policy_lags
        self._policy_lags = []
        found = self._settling.values(committed) | {"gradients/owed": float(committed["owed"])}
        sampled = float(committed["applied"]) * self._settings.keeper.sampled_rows()
        found |= lag_values("policy", policy_lags)
        return found | {"replay/ratio": sampled / max(1.0, float(committed["steps"]))}

    def _note_paid(self, record: Arrays) -> int:
        """Note how many rows have all gradient steps done.

        Call it after the commit: until then a life that takes over needs their slots. Publishing then rings the bells
        of the environment nodes.
        """
        paid = self._settings.limiter.paid(int(record["steps"]), int(record["owed"]))
        self._ports.note("paid", paid)
        return paid

    def _apply(self) -> Work:
        """Apply the gradients that wait, as far as steps are due; then one commit, publish, release their slots."""
        keeper, deadline = self._keeper, time.monotonic() + STEP_LIMIT_S
        committed, progress = keeper.committed, keeper.progress()
        new = keeper.next_record()
        # The commit writes the state.
        for name in new.keys() - {spec.name for spec in self._settings.keeper.spec.state}:
            new[name][...] = committed[name]
        used: list[int] = []
        while self._wanted(new) and time.monotonic() < deadline:
            index = self._gradients.take()
            if index is None:
                break
            used.append(index)
            slot = self._gradients.slot(index)
            if not self._settling.settled(slot, new) and self._settling.settle(slot, new, progress):
                new["owed"][...] = max(0, int(new["owed"]) - 1)
        keeper.commit_unpublished(new, self._applier.state())
        paid = self._note_paid(new)
        # Publishing wakes all environment nodes that wait for ``paid``. With a small network, waking four of them for
        # each gradient cost more than applying it. So the policy is published once a rollout.
        if paid - self._told_paid >= self._rollout_rows or int(new["owed"]) == 0:
            self._told_paid = paid
            keeper.publish()
        self._publish()
        for index in used:
            self._gradients.release(index)
        yield None

    def _publish(self) -> None:
        committed = self._keeper.committed
        self._parameters.publish(committed, int(committed["applied"]))
