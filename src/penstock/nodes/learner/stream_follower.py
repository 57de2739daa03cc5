"""StreamFollowerNode: computes gradients on rollouts of its own environment nodes, and hands them on. Commits nothing.

The `StreamParameterNode` applies the gradients. A3C runs this node in the process of its environment node.
"""

from dataclasses import dataclass

import numpy as np

from penstock.algorithm import APPROX_KL, Schedule
from penstock.nodes.contract import Ports
from penstock.nodes.learner.batch import valid_rows, whole_lanes
from penstock.nodes.learner.passes import Passes
from penstock.nodes.learner.work import Work, WorkingNode
from penstock.registry import load
from penstock.types import Array
from penstock.updates.contract import Updater
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import StreamTeam

__all__ = ["StreamFollowerNode", "StreamFollowerSettings"]


@dataclass(frozen=True)
class StreamFollowerSettings:
    """What one StreamFollowerNode learns."""

    build: str
    """``module:build_stream_follower`` of the updater, or ``module:build`` if it applies its gradients itself."""
    updater: UpdaterSettings
    """``updater.learner`` is the index of this learner."""
    schedule: Schedule
    """Epochs of a batch, and whole minibatches."""
    team: str
    """``module:build`` of the `StreamTeam`: ``(ports, updater settings, learners)``."""
    learners: int
    """Number of these nodes. Each has an equal share of the environment nodes."""
    rollouts: int
    """Environment nodes of each learner, and rollouts of a batch."""
    max_policy_lag: float
    """A rollout is dropped if its policy is older than this many updates."""
    work_limit_s: float


class StreamFollowerNode(WorkingNode):
    """Looks into stream ``rollouts``, and hands gradients to its team.

    - A batch is the oldest rollouts of its environment nodes.
    - Each gradient names the rollouts of its batch. The last one says that they are done with.
    - Board ``parameters`` names the batch, and how many of its gradients are settled. So the next life of this node
      goes on where this one died, and no gradient is lost or counted twice.
    """

    def __init__(self, settings: StreamFollowerSettings) -> None:
        self._settings = settings
        self._done_with: set[int] = set()
        """Sequences of the rollouts that this life is done with. The `StreamParameterNode` has still to free them."""

    def _begin(self, ports: Ports) -> Work:
        """Build the updater."""
        settings = self._settings
        self._rollouts = ports.stream_reader("rollouts")
        self._parameters = ports.board_reader("parameters")
        self._policy = ports.board_reader("policy")
        self._team: StreamTeam = load(settings.team)(ports, settings.updater, settings.learners)
        self._units = valid_rows if settings.updater.spec.unit == "row" else whole_lanes
        with ports.busy("build the update", settings.work_limit_s):
            self._updater: Updater = load(settings.build)(settings.updater, self._rollouts.arrays, self._team)
        return self._learn()

    def _learn(self) -> Work:
        """Go on with the batch that an earlier life had begun, then learn from one batch after the other."""
        stopping, me = self._ports.stopping, self._settings.updater.learner
        # What an earlier life has handed on is settled first: then the board says how far its batch is.
        yield lambda: stopping() or (self._parameters.version() >= 0 and not self._team.in_flight())
        state = None if stopping() else self._team.join(self._updater.state())
        if state is None:
            return
        self._updater.load(state)
        begun = self._told("batch", np.int64, (self._settings.learners, self._settings.rollouts))[me]
        settled = int(self._told("batch_settled", np.int64, (self._settings.learners,))[me])
        if settled:
            yield from self._batch([sequence for sequence in begun.tolist() if sequence >= 0], settled)
        while not stopping():
            batch = self._next()
            if batch is None:
                yield lambda: self._next() is not None or stopping()
                continue
            stale = [sequence for sequence in batch if self._lag(sequence) > self._settings.max_policy_lag]
            yield from self._drop(stale) if stale else self._batch(batch, 0)
        self._team.leave()

    def _told(self, name: str, dtype: type, shape: tuple[int, ...]) -> Array:
        """One array of board ``parameters``."""
        into: Array = np.zeros(shape, dtype)
        self._parameters.read({name: into})
        return into

    def _next(self) -> list[int] | None:
        """The sequences of the next batch; ``None`` while some rollouts are missing.

        Race:

        1. A look passes a slot while it is free.
        2. An environment node pushes a rollout into this slot, and its next one into a slot behind it.
        3. The look finds only the second of them.

        Another look finds all that was pushed before what this one has found. So a batch counts only if two looks in a
        row find it.
        """
        found = self._oldest()
        while found is not None:
            last, found = found, self._oldest()
            if found == last:
                break
        return found

    def _oldest(self) -> list[int] | None:
        """The oldest rollouts of this learner's environment nodes, as one look finds them.

        Race: meanwhile the `StreamParameterNode` frees slots, and other environment nodes fill them anew. A slot's
        content may change while it is read. So the slot's sequence says whose rollout it is.
        """
        settings, written = self._settings, self._rollouts.written()
        nodes, me = settings.learners * settings.rollouts, settings.updater.learner
        self._done_with &= written.keys()
        own = [sequence for sequence in written if sequence % nodes // settings.rollouts == me]
        waiting = sorted(set(own) - self._done_with)
        return waiting[: settings.rollouts] if len(waiting) >= settings.rollouts else None

    def _slots(self, sequences: list[int]) -> list[int]:
        """The slots of these rollouts, which nothing frees before this node is done with them."""
        written = self._rollouts.written()
        return [written[sequence] for sequence in sequences]

    def _lag(self, sequence: int) -> int:
        """How many updates old the policy of a rollout is."""
        (slot,) = self._slots([sequence])
        return self._policy.version() - int(self._rollouts.slot(slot)["policy_version"][0, 0])

    def _may_begin(self) -> bool:
        return self._team.begin(self._updater) or self._ports.stopping()

    def _drop(self, sequences: list[int]) -> Work:
        """Tell that these rollouts are too old to learn from."""
        if not self._may_begin():
            yield self._may_begin
        if not self._ports.stopping():
            self._hand_on(sequences, last=True, stale=True)

    def _batch(self, sequences: list[int], first: int) -> Work:
        """Hand on the gradients of a batch, from number ``first`` on."""
        settings, schedule, stopping = self._settings, self._settings.schedule, self._ports.stopping
        slots = self._slots(sequences)
        nodes = settings.learners * settings.rollouts
        key = (settings.updater.seed, sequences[0] // nodes)
        passes = Passes([self._units(self._rollouts, slots)], [settings.updater.learner], schedule, key)
        if passes.total == 0:
            yield from self._drop(sequences)
        divergences: list[float] = []
        for number in range(first, passes.total):
            if not self._may_begin():
                yield self._may_begin
            if stopping():
                return
            with self._ports.span("gradient"), self._ports.busy("gradient step", settings.work_limit_s):
                if number == first:
                    self._updater.begin(slots, float(self._told("progress", np.float64, ())))
                self._updater.minibatches(*passes.minibatch(number))
            divergences.append(self._team.found().get(APPROX_KL, 0.0))
            last = number + 1 == passes.total
            if passes.ends_epoch(number):
                last = last or schedule.ends_epochs(float(np.mean(divergences)))
                divergences.clear()
            self._hand_on(sequences, last=last)
            yield None
            if last:
                return

    def _hand_on(self, sequences: list[int], *, last: bool, stale: bool = False) -> None:
        """End a step: hand on what was found on these rollouts."""
        named = np.full(self._settings.rollouts, -1, np.int64)
        named[: len(sequences)] = sequences
        for name, value in (("rollouts", named), ("last", last), ("stale", stale)):
            self._team.tell(name, value)
        if last:
            self._done_with |= set(sequences)
        self._team.end()
