"""StreamParameterNode: applies the gradients that learners compute on a stream, each once; commits and publishes.

It owns the run's state. One commit holds the new parameters and the count of settled gradients. With the last gradient
of a batch, the commit also holds the rollouts of this batch. The node computes no gradient itself, and waits for no
particular learner.
"""

from dataclasses import dataclass

from penstock.algorithm import Schedule
from penstock.errors import PenstockError
from penstock.nodes.contract import Ports
from penstock.nodes.learner.keeper import Keeper, KeeperSettings
from penstock.nodes.learner.losses import lag_values
from penstock.nodes.learner.penalty import adapt
from penstock.nodes.learner.record import carry_over, consumed_sequences, count_dropped, count_learned
from penstock.nodes.learner.settling import Settling
from penstock.nodes.learner.work import Work, WorkingNode
from penstock.registry import load
from penstock.types import Arrays
from penstock.updates.contract import StreamApplier
from penstock.updates.settings import UpdaterSettings

__all__ = ["StreamParameterNode", "StreamParameterSettings"]


@dataclass(frozen=True)
class StreamParameterSettings:
    """What one StreamParameterNode applies and keeps."""

    keeper: KeeperSettings
    build: str
    """``module:build_stream_applier`` of the applier."""
    updater: UpdaterSettings
    max_gradient_lag: float
    """A gradient is dropped and counted if its parameters are older than this many gradient steps."""
    work_limit_s: float
    owner: str | None = None
    """``module:build_owner`` of a rule by which learners apply their gradients themselves: ``(ports, updater settings,
    applier) -> Applier``. ``None``: this node applies them."""


class StreamParameterNode(WorkingNode):
    """Takes streams ``gradients`` and ``rollouts``, and publishes on boards ``parameters`` and ``policy``.

    A rollout's gradients come after the rollout. Its slot is freed after the commit that names the rollout.
    """

    def __init__(self, settings: StreamParameterSettings) -> None:
        self._settings = settings
        schedule = settings.updater.spec.schedule
        if not isinstance(schedule, Schedule):
            raise PenstockError("a stream of rollouts is learned from in epochs")
        self._schedule = schedule
        self._waiting: dict[int, int] = {}
        """Sequence of each rollout that was taken -> its slot."""

    def _begin(self, ports: Ports) -> Work:
        """Build the applier; take the initial or the checkpoint's state, commit and publish it."""
        settings = self._settings
        self._rollouts = ports.stream_reader("rollouts")
        self._gradients = ports.stream_reader("gradients")
        self._parameters = ports.board_writer("parameters")
        self._keeper = Keeper(settings.keeper, ports)
        with ports.busy("build the update", settings.work_limit_s):
            self._applier: StreamApplier = load(settings.build)(settings.updater, self._rollouts.arrays)
            if settings.owner is not None:
                self._applier = load(settings.owner)(ports, settings.updater, self._applier)
        self._settling = Settling(
            self._applier, settings.updater, settings.max_gradient_lag, ports, settings.work_limit_s
        )
        committed = self._keeper.former()
        if committed is None:
            self._applier.load(self._keeper.begin(batch=-1))
        else:
            self._rollouts.release_consumed(consumed_sequences(committed))
            self._keeper.take_over(committed)
            self._applier.load(self._keeper.state())
        self._publish()
        return self._keep()

    def _keep(self) -> Work:
        """The whole life of the node: one gradient after the other."""
        keeper, ports = self._keeper, self._ports
        if ports.former:
            yield from keeper.after_takeover()
        while not keeper.done() and not ports.stopping():
            index = self._gradients.take()
            if index is None:
                yield lambda: self._gradients.ready() > 0 or ports.stopping()
                continue
            update = int(keeper.committed["update"])
            with ports.span("gradient"):
                yield from keeper.saving_if_bad(self._settle(self._gradients.slot(index)))
            self._gradients.release(index)
            if int(keeper.committed["update"]) > update:
                yield from keeper.after_commit()
        yield from keeper.end()

    def _settle(self, found: Arrays) -> Work:
        """Apply one gradient, unless it is too old or an earlier life has settled it. The last one ends its batch."""
        keeper, learner = self._keeper, int(found["learner"])
        committed = keeper.committed
        if self._settling.settled(found, committed):
            return
        new = keeper.next_record()
        carry_over(new, committed)
        if found["stale"]:
            new["settled"][learner] = found["step"]
        else:
            new["batch_applied"][learner] += self._settling.settle(found, new, keeper.progress())
        new["batch"][learner] = found["rollouts"]
        new["batch_settled"][learner] += 1
        if found["last"]:
            self._end_batch(learner, new)
        else:
            keeper.commit_unpublished(new, self._applier.state())
            self._publish()
        yield None

    def _end_batch(self, learner: int, new: Arrays) -> None:
        """Commit a learner's batch and free its rollouts. If none of its gradients was applied, it counts as stale."""
        keeper, rollouts = self._keeper, self._rollouts
        slots = self._slots_of([sequence for sequence in new["batch"][learner].tolist() if sequence >= 0])
        applied = int(new["batch_applied"][learner])
        new["batch"][learner] = -1
        new["batch_settled"][learner] = new["batch_applied"][learner] = 0
        version = int(keeper.committed["update"])
        lags = [version - int(rollouts.slot(slot)["policy_version"][0, 0]) for slot in slots]
        with self._ports.span("commit"):
            if applied:
                self._applier.merge(slots, learned=True)
                self._applier.finish()
                adapt(self._applier, self._schedule, self._settling.means())
                count_learned(new, rollouts, slots)
                keeper.commit(new, self._applier.state())
            else:
                count_dropped(new, rollouts, slots)
                keeper.make_current(new)
        self._publish()
        for slot in slots:
            rollouts.release(slot)
        if applied:
            keeper.report(self._settling.values(keeper.committed) | lag_values("policy", lags))

    def _slots_of(self, sequences: list[int]) -> list[int]:
        """The slots of these rollouts. They were pushed before their gradients."""
        while (index := self._rollouts.take()) is not None:
            self._waiting[self._rollouts.sequence(index)] = index
        missing = [sequence for sequence in sequences if sequence not in self._waiting]
        if missing:
            raise PenstockError(f"there are gradients of rollouts {missing}, and no such rollouts")
        return [self._waiting.pop(sequence) for sequence in sequences]

    def _publish(self) -> None:
        """Publish the parameters for the learners, whose version is the number of gradient steps."""
        committed = self._keeper.committed
        self._parameters.publish(committed, int(committed["applied"]))
