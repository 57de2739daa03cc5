"""BatchFollowerNode: computes the gradient of its share of each minibatch, and hands it on. Commits nothing.

The `LearnerNode` chooses the batches, and steps the parameters by the gradients of all followers together.
"""

from dataclasses import dataclass

import numpy as np

from penstock.algorithm import Schedule
from penstock.nodes.contract import Ports
from penstock.nodes.learner.epochs import shares_of
from penstock.nodes.learner.gradient_slot import BEFORE, before_specs, common_batch_board_specs
from penstock.nodes.learner.handed_on_epochs import NOTHING_WANTED
from penstock.nodes.learner.passes import Passes
from penstock.nodes.learner.work import Work, WorkingNode
from penstock.ops.statistics import VALUE_STATISTICS
from penstock.registry import load
from penstock.types import ArraySpec
from penstock.updates.contract import Updater
from penstock.updates.settings import UpdaterSettings
from penstock.updates.team import StreamTeam

__all__ = ["BatchFollowerNode", "BatchFollowerSettings"]

PROGRESS = ArraySpec("progress", (), "float64")
"""Array of the state: how far the run is, in [0, 1]."""


@dataclass(frozen=True)
class BatchFollowerSettings:
    """What one BatchFollowerNode learns."""

    build: str
    """``module:build_stream_follower`` of the updater."""
    updater: UpdaterSettings
    """``updater.learner`` is the index of this learner, ``updater.sharing`` the number of learners."""
    schedule: Schedule
    """Of the algorithm: whole minibatches."""
    team: str
    """``module:build`` of the `StreamTeam`: ``(ports, updater settings, learners)``."""
    rollouts: int
    """Rollouts of a batch."""
    work_limit_s: float


class BatchFollowerNode(WorkingNode):
    """Answers each version of board ``parameters`` with one gradient.

    The board says which rollouts are the batch, and the number of the minibatch. If this node dies in the middle of a
    batch, its next life computes the gradient that is missing. Two boards have what it needs for that:

    - ``policy``: the policy from before the batch, until the batch is committed.
    - ``parameters``: the target networks from before the batch.
    """

    def __init__(self, settings: BatchFollowerSettings) -> None:
        self._settings = settings
        self._begun = -1
        self._passes: Passes | None = None

    def _begin(self, ports: Ports) -> Work:
        """Build the updater."""
        settings = self._settings
        self._rollouts = ports.stream_reader("rollouts")
        self._parameters = ports.board_reader("parameters")
        self._policy = ports.board_reader("policy")
        self._team: StreamTeam = load(settings.team)(ports, settings.updater, settings.updater.sharing)
        before = before_specs(settings.updater.spec.shared())
        specs = (*common_batch_board_specs((), settings.updater.sharing, settings.rollouts), *before, PROGRESS)
        self._told = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs if spec.name != "settled"}
        self._team.watch(self._told)
        with ports.busy("build the update", settings.work_limit_s):
            self._updater: Updater = load(settings.build)(settings.updater, self._rollouts.arrays, self._team)
        return self._learn()

    def _learn(self) -> Work:
        stopping = self._ports.stopping
        yield lambda: self._parameters.version() >= 0 or stopping()
        state = None if stopping() else self._team.join(self._updater.state())
        if state is None:
            return
        self._updater.load(state)
        while not stopping():
            if not self._team.begin(self._updater):
                yield lambda: stopping() or self._team.begin(self._updater)
                continue
            if not self._may_compute():
                # On another machine, each board comes by itself.
                yield lambda: stopping() or self._may_compute()
                continue
            with self._ports.span("gradient"), self._ports.busy("gradient step", self._settings.work_limit_s):
                self._compute()
            self._team.end()
            yield None
        self._team.leave()

    def _may_compute(self) -> bool:
        """False while board ``policy`` lacks the policy before a batch in whose middle this life begins."""
        begins = int(self._told["begun"]) != self._begun
        within = begins and int(self._told["done"]) > 0
        return not within or self._policy.version() >= int(self._told["update"])

    def _compute(self) -> None:
        """Compute the gradient that the latest version asks for."""
        done = int(self._told["done"])
        if done == NOTHING_WANTED:
            return
        if self._passes is None or int(self._told["begun"]) != self._begun:
            self._passes = self._go_on() if done else self._begin_batch()
        self._updater.minibatches(*self._passes.minibatch(done))

    def _go_on(self) -> Passes:
        """Go on with a batch in which an earlier life died. Its targets come from the networks before the batch.

        Race: this life may have joined when the batch began, and still go on in its middle.

        1. An earlier life hands on the first gradient of the batch, and dies.
        2. This life joins, and loads the parameters from the beginning of the batch.
        3. The other learners hand on their first gradients. So this life has to compute the second gradient next.

        If values are normalised, the owner has merged the statistics of the batch into the policy before it asked for
        gradients. This node merges them again. The last bits of its targets may differ from the owner's, because the
        owner computes the targets of one rollout at a time when it merges.
        """
        state = {name: values.copy() for name, values in self._updater.state().items()}
        before = {part.name: np.zeros(part.shape, part.dtype) for part in self._settings.updater.spec.published()}
        # Race: the batch may have been committed meanwhile. Then nothing that is found on it is used.
        if self._policy.read(before) == self._told["update"]:
            told = {name.removeprefix(BEFORE): values for name, values in self._told.items() if name.startswith(BEFORE)}
            self._updater.load({**before, **told})
            if VALUE_STATISTICS[0] in before:
                self._begin_batch()
                self._updater.merge(self._told["slots"].tolist())
        passes = self._begin_batch()
        self._updater.load(state)
        return passes

    def _begin_batch(self) -> Passes:
        """Compute the targets of the batch that the latest version is of. Returns its minibatches."""
        settings, slots = self._settings, self._told["slots"].tolist()
        self._begun = int(self._told["begun"])
        passes = Passes(
            shares_of(slots, settings.updater.sharing, settings.updater.spec.unit, self._rollouts),
            range(settings.updater.sharing),
            settings.schedule,
            (settings.updater.seed, int(self._told["update"])),
        )
        self._updater.begin(slots, float(self._told["progress"]))
        return passes
