"""SharedParameterNode: applies the gradient of each rollout once, as it comes; commits and publishes the parameters.

It owns the run's state. One commit holds the new parameters and the rollout that they were learned from. It finds no
gradient itself and waits for no particular learner.
"""

from dataclasses import dataclass

from penstock.algorithm import UpdaterSettings
from penstock.errors import PenstockError
from penstock.nodes.contract import Ports
from penstock.nodes.learner.gradient_slot import gradients_in, metrics_in
from penstock.nodes.learner.keeper import Keeper, KeeperSettings
from penstock.nodes.learner.losses import loss_values, refuse_bad_losses
from penstock.nodes.learner.record import drop, follow
from penstock.nodes.learner.work import Work, WorkingNode
from penstock.registry import load
from penstock.types import Arrays
from penstock.updates.contract import Applier

__all__ = ["SharedParameterNode", "SharedParameterSettings"]


@dataclass(frozen=True)
class SharedParameterSettings:
    """What one SharedParameterNode applies and keeps."""

    keeper: KeeperSettings
    update: str
    """``module:build_applier`` of the applier."""
    updater: UpdaterSettings
    open_limit_s: float


class SharedParameterNode(WorkingNode):
    """Takes streams ``gradients`` and ``rollouts``, and publishes on board ``policy``.

    A rollout's gradient comes after the rollout. Both slots are freed after the commit that names the rollout.
    """

    def __init__(self, settings: SharedParameterSettings) -> None:
        self._settings = settings
        self._shared = settings.keeper.spec.shared()
        self._waiting: dict[tuple[int, int], int] = {}
        """First lane and number of each rollout that was taken -> its slot."""

    def _begin(self, ports: Ports) -> Work:
        """Build the applier; take the initial or the checkpoint's state, commit and publish it."""
        settings = self._settings
        self._rollouts = ports.stream_reader("rollouts")
        self._gradients = ports.stream_reader("gradients")
        self._keeper = Keeper(settings.keeper, ports)
        with ports.busy("build the update", settings.open_limit_s):
            self._applier: Applier = load(settings.update)(settings.updater)
        committed = self._keeper.former()
        if committed is None:
            self._applier.load(self._keeper.begin())
        else:
            self._applier.load({part.name: committed[part.name] for part in settings.keeper.spec.state})
            used = committed["consumed_sequence"][committed["consumed_slot"] >= 0]
            self._rollouts.release_consumed(used.tolist())
            self._keeper.take_over(committed)
        return self._keep()

    def _keep(self) -> Work:
        """The whole life of the node: one gradient after the other."""
        keeper, ports = self._keeper, self._ports
        if ports.former:
            yield from keeper.again_behind_commit()
        while not keeper.done() and not ports.stopping():
            index = self._gradients.take()
            if index is None:
                yield lambda: self._gradients.ready() > 0 or ports.stopping()
                continue
            with ports.span("gradient"):
                yield from keeper.or_keep(self._settle(self._gradients.slot(index)))
            self._gradients.release(index)
            yield from keeper.behind_commit()
        yield from keeper.checkpoint()

    def _settle(self, found: Arrays) -> Work:
        """Apply a rollout's gradient, or drop both if the gradient is too old. An earlier life may have settled it."""
        keeper, run = self._keeper, self._settings.keeper.run
        committed = keeper.committed
        lane, rollout = int(found["learner"]), int(found["step"])
        if rollout < int(committed["lane_rollout"][lane]):
            return
        slot = self._slot_of(lane, rollout)
        update, new = int(committed["update"]), keeper.next()
        lag = update - int(found["version"])
        if lag > run.max_policy_lag:
            drop(new, committed, self._rollouts, slot)
            keeper.enter(new)
            self._rollouts.release(slot)
            return
        metrics = metrics_in(found)
        refuse_bad_losses(metrics, update + 1)
        with self._ports.busy("gradient step", self._settings.open_limit_s):
            progress = min(1.0, float(committed["steps"]) / run.timesteps)
            self._applier.apply(gradients_in(found, self._shared), progress)
        with self._ports.span("commit"):
            follow(new, committed, self._rollouts, [slot])
            keeper.commit(new, self._applier.state())
        played = update - int(self._rollouts.slot(slot)["policy_version"][0, 0])
        self._rollouts.release(slot)
        keeper.report(loss_values(metrics) | {"policy/lag": float(played), "gradients/lag": float(lag)})
        yield None

    def _slot_of(self, lane: int, rollout: int) -> int:
        """The slot of a rollout. It was pushed before its gradient."""
        while (index := self._rollouts.take()) is not None:
            taken = self._rollouts.slot(index)
            self._waiting[int(taken["first_lane"]), int(taken["rollout"])] = index
        if (lane, rollout) not in self._waiting:
            raise PenstockError(f"there is a gradient of rollout {rollout} of lane {lane}, and no such rollout")
        return self._waiting.pop((lane, rollout))
