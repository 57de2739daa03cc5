"""ActorLearnerNode: finds the gradient of each rollout of one environment node, and hands it on. Commits nothing.

It runs in the process of that environment node. The `SharedParameterNode` applies the gradients.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.algorithm import UpdaterSettings
from penstock.nodes.contract import Ports
from penstock.nodes.learner.batch import minibatches, valid_rows, whole_lanes
from penstock.nodes.learner.gradient_slot import Filling
from penstock.nodes.learner.work import Work, WorkingNode
from penstock.registry import load
from penstock.types import Array, Arrays
from penstock.updates.contract import Updater

__all__ = ["ActorLearnerNode", "ActorLearnerSettings"]


@dataclass(frozen=True)
class ActorLearnerSettings:
    """What one ActorLearnerNode learns."""

    update: str
    """``module:build_stream_finder`` of the updater."""
    updater: UpdaterSettings
    """Its minibatch, in ``accumulate`` parts, is one rollout."""
    first_lane: int
    """Its rollouts begin with this lane."""
    learners: int
    """Number of these nodes; ``updater.learner`` is the index of this one, and of its environment node."""
    timesteps: int
    open_limit_s: float


class ActorLearnerNode(WorkingNode):
    """Looks into stream ``rollouts``, and writes stream ``gradients``.

    A gradient is named by the rollout that it was found on. So it does no harm if the next life of this node finds one
    again: the `SharedParameterNode` has settled that rollout.
    """

    def __init__(self, settings: ActorLearnerSettings) -> None:
        self._settings = settings
        self._filling: Filling | None = None
        self._sent = -1

    def _begin(self, ports: Ports) -> Work:
        """Build the updater."""
        settings, spec = self._settings, self._settings.updater.spec
        self._rollouts = ports.stream_reader("rollouts")
        self._gradients = ports.stream_writer("gradients")
        self._policy = ports.board_reader("policy")
        self._latest: Arrays = {part.name: np.zeros(part.shape, part.dtype) for part in spec.published()}
        self._places = {part.name: place for place, part in enumerate(spec.shared())}
        self._units = valid_rows if spec.unit == "row" else whole_lanes
        with ports.busy("build the update", settings.open_limit_s):
            self._updater: Updater = load(settings.update)(settings.updater, self._rollouts.arrays, self._hand_on)
        mine = [key for key in self._gradients.written() if key % settings.learners == settings.updater.learner]
        self._sent = max(mine, default=-1) // settings.learners
        return self._learn()

    def _learn(self) -> Work:
        stopping = self._ports.stopping
        while not stopping():
            if (slot := self._next()) is None or self._gradients.free() == 0:
                yield lambda: stopping() or (self._next() is not None and self._gradients.free() > 0)
                continue
            with self._ports.span("gradient"):
                self._find(slot)
            yield None

    def _next(self) -> int | None:
        """The slot of the oldest own rollout whose gradient is not handed on yet.

        Race: the `SharedParameterNode` frees slots meanwhile, and other environment nodes fill them anew. So a slot's
        sequence says whose rollout it is, and not its content, which may change while it is read.
        """
        settings = self._settings
        own = {
            sequence: slot
            for sequence, slot in self._rollouts.written().items()
            if sequence % settings.learners == settings.updater.learner and sequence // settings.learners > self._sent
        }
        return own[min(own)] if own else None

    def _find(self, slot: int) -> None:
        """Find the gradient of the rollout in a slot, from the latest parameters, and hand it on."""
        settings, rollout = self._settings, int(self._rollouts.slot(slot)["rollout"])
        index = self._gradients.claim(rollout * settings.learners + settings.updater.learner)
        if index is None:
            return
        into = self._gradients.slot(index)
        self._filling = Filling(into, self._places)
        into["version"][...] = self._policy.read(self._latest)
        into["learner"][...] = settings.first_lane
        into["step"][...] = rollout
        self._updater.load(self._latest)
        self._updater.begin([slot], 0.0)
        units = self._units(self._rollouts, [slot])
        size = settings.updater.spec.schedule.mini_batch_size * settings.updater.accumulate
        key = (settings.updater.seed, rollout, 0)
        whole = minibatches(units, size, key, learner=settings.updater.learner, count=1)
        with self._ports.busy("gradient", settings.open_limit_s):
            self._updater.minibatches(whole.indices, whole.weights)
        self._filling.tell(self._updater.metrics())
        self._gradients.push(index)
        self._sent = rollout

    def _hand_on(self, phase: str, gradients: Mapping[str, Array]) -> None:
        """Write the gradients of a phase into the slot. See `penstock.updates.contract.HandOn`."""
        if self._filling is not None:
            self._filling.put(phase, gradients)
