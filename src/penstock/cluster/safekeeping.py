"""Safekeeping: a thread of the launcher that keeps a deputy on another machine, with a copy of the run folder.

Training does not wait for it. If the deputy's machine is lost, it appoints another one, which gets the whole copy.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.cluster.copies import Delivery, Original
from penstock.cluster.deputy import NAMESPACE, SILENCE_S, Charge, Deputy, kept_on
from penstock.cluster.door import Door
from penstock.cluster.freshness import Freshness
from penstock.cluster.launcher_thread import LauncherThread
from penstock.cluster.listing import own_door, own_name
from penstock.cluster.machines import Machine
from penstock.cluster.own_code import imported_from
from penstock.cluster.troubles import Troubles
from penstock.saved_runs.launches import first_launch
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["Safekeeping", "first_choice"]

WORD_S = 1.0
"""A deputy hears from the launcher at least this often."""
GIVEN_UP_S = SILENCE_S - 4.0
"""A deputy that does not answer for so long is given up. Ray then has 4 s to end it, before it would take over."""
START_S = 120.0
"""The same for one that has not answered yet: its Python has to start."""
LOOK_S = 0.02
"""How often the thread looks whether the run has written a checkpoint."""
END_S = 5.0
PAUSE_S = 3.0
"""Seconds after a deputy was given up until the next one is appointed."""


def first_choice(machines: Sequence[Machine]) -> Machine | None:
    """The machine that is to go on with the run: with the most GPUs, then the most cores; ``None`` if there is none."""

    def strength(machine: Machine) -> tuple[float, float, str]:
        amounts = machine.offer.resources
        return amounts.get("gpu", 0.0), amounts.get("cpu", 0.0), machine.id

    return max(machines, key=strength, default=None)


class Safekeeping(LauncherThread):
    """The thread. At the end of its block, the run has ended: the deputy ends, and its copy is removed.

    If the run has ended because this machine was cut off, the deputy is told to go on with it. It hears that only if
    the link is back by then; otherwise it finds out by itself.

    Args:
        folder: of the run.
        machines: the machines, besides the launcher's, that take part at the time of the call.
        want_checkpoint: ask the run for a checkpoint.
        written: how many checkpoints the run has written.
        cut_off: called with the reason if the run must end here: neither the deputy nor Ray's head answers, so the
            deputy may take over.
        claims: names the claims of the run.
    """

    def __init__(
        self,
        folder: RunFolder,
        machines: Callable[[], Sequence[Machine]],
        want_checkpoint: Callable[[], None],
        written: Callable[[], int],
        cut_off: Callable[[str], None],
        *,
        claims: str,
    ) -> None:
        # Where Ray's head is lost, the thread may wait for it.
        super().__init__("safekeeping", END_S)
        self._folder = folder
        self._machines = machines
        self._want_checkpoint = want_checkpoint
        self._written = written
        self._cut_off = cut_off
        self._claims = claims
        self._freshness = Freshness()
        self._head = Door.at(ray.get_runtime_context().gcs_address)
        self._given_up: set[str] = set()
        self._deputy: _Appointed | None = None
        self._heir: _Appointed | None = None
        """The deputy that takes over, because this machine is cut off."""

    def _ended(self, error: BaseException | None) -> None:
        if self._deputy is not None:
            self._deputy.end()
        if self._heir is not None and error is not None:
            self._heir.go_on()
        elif self._heir is not None:
            # The run was at its end when it was cut off.
            self._heir.end()

    def _run(self) -> None:
        troubles = Troubles(self._folder.deaths, "keeping a copy of the run on another machine")
        while not self._over.is_set():
            if not troubles.survived(self._turn):
                self._over.wait(PAUSE_S)

    def _turn(self) -> None:
        if self._heir is not None:
            # Go on with deliveries to the heir. If the link is back, they bring it the last checkpoint. As long as they
            # come, it does not take this launcher for ended, and so does not remove its copy.
            self._heir.hear(self._over)
            self._over.wait(WORD_S)
        elif self._deputy is None:
            self._appoint()
        else:
            written = self._written()
            if not self._deputy.hear(self._over):
                self._give_up(self._deputy)
            elif self._deputy.up_to_date:
                self._wait(self._deputy, written)

    def _wait(self, deputy: "_Appointed", written: int) -> None:
        """Wait until the run has written another checkpoint, or the deputy is to hear a word. Ask for that checkpoint.

        Args:
            deputy: its copy is up to date.
            written: the checkpoints that the run had written before that.
        """
        until = time.monotonic() + WORD_S
        while self._written() == written and (now := time.monotonic()) < until:
            if self._freshness.due(now, written, deputy.checkpoint_bytes, deputy.transfer_s):
                self._want_checkpoint()
            if self._over.wait(LOOK_S):
                break

    def _appoint(self) -> None:
        there = self._machines()
        if all(machine.id in self._given_up for machine in there):
            # One of them may have come back.
            self._given_up.clear()
            self._over.wait(PAUSE_S)
        chosen = first_choice([machine for machine in there if machine.id not in self._given_up])
        if chosen is None or self._over.is_set():
            return
        if not chosen.door.opens():
            self._given_up.add(chosen.id)
            return
        with contextlib.suppress(ray.exceptions.RayError):
            self._deputy = _Appointed(self._folder, chosen, self._claims)

    def _give_up(self, deputy: "_Appointed") -> None:
        self._given_up.add(deputy.machine.id)
        self._deputy = None
        if not self._head.opens():
            self._heir = deputy
            why = "this machine is cut off from the cluster, or Ray's head is lost"
            self._cut_off(f"{why}; {deputy.machine.name} goes on with the run if it reaches Ray's head")
            return
        deputy.kill()
        self._over.wait(PAUSE_S)


class _Appointed:
    """A deputy, as its launcher sees it.

    Attributes:
        machine: where it runs.
        up_to_date: whether its copy lacks nothing.
        transfer_s: how long the last checkpoint took on its way, in seconds; 0: not known yet.
    """

    def __init__(self, folder: RunFolder, machine: Machine, claims: str) -> None:
        self.machine = machine
        self.up_to_date = False
        self.transfer_s = 0.0
        self._under_way_s = 0.0
        """The same of the checkpoint that is under way, up to now."""
        self._original = Original(folder)
        self._unanswered: Delivery | None = None
        """It may have arrived or not, so it is sent again until it is answered: the copy takes one twice."""
        self._held: tuple[str, ...] = ()
        self._limit_s = START_S
        path = folder.path.resolve()
        charge = Charge(
            name=path.name,
            begun=first_launch(folder),
            log_dir=str(path.parent),
            working_directory=str(Path.cwd()),
            path=imported_from(),
            home=own_name(),
            door=own_door(),
            here=machine.name,
            cluster=ray.get_runtime_context().gcs_address,
            claims=claims,
        )
        self._actor = (
            ray.remote(Deputy)
            .options(
                num_cpus=0,
                # As for hosts: see `Machine`.
                enable_task_events=False,
                name=f"{kept_on(path.name, machine.name)}{secrets.token_hex(4)})",
                namespace=NAMESPACE,
                lifetime="detached",
                # While a deputy takes over, deliveries wait for its lock. With more threads, it still answers `go_on`
                # and `ask` meanwhile.
                max_concurrency=8,
                scheduling_strategy=NodeAffinitySchedulingStrategy(machine.id, soft=False),
            )
            .remote(charge)
        )

    @property
    def checkpoint_bytes(self) -> int:
        """Size of the last checkpoint that was sent."""
        return self._original.checkpoint_bytes

    def hear(self, over: threading.Event) -> bool:
        """Deliver the next thing that the copy lacks, if only a word. False if the deputy does not answer.

        Args:
            over: set when the run has ended, so that nothing is waited for.

        Raises:
            RayError: the object store has no room for the delivery. The next call sends it.
        """
        begun = time.monotonic()
        if self._unanswered is None:
            self._unanswered = self._original.next(self._held)
        delivery = self._unanswered
        self.up_to_date = not self._original.behind
        answer: Any = self._actor.take.remote(delivery)
        try:
            while not ray.wait([answer], timeout=WORD_S)[0]:
                if over.is_set():
                    return True
                if time.monotonic() > begun + self._limit_s:
                    return False
            self._held = ray.get(answer)
        except ray.exceptions.RayError:
            return False
        self._unanswered = None
        if self._limit_s == GIVEN_UP_S:
            # Its first answer came late, because it had to start.
            self._under_way_s += time.monotonic() - begun
        if delivery.complete:
            self.transfer_s, self._under_way_s = self._under_way_s, 0.0
        self._limit_s = GIVEN_UP_S
        return True

    def end(self) -> None:
        """The run has ended: end the deputy without a trace."""
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            ray.get(self._actor.end.remote(), timeout=END_S)
        self.kill()

    def go_on(self) -> None:
        """The run has ended here, where it is cut off: let the deputy go on with it."""
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            ray.get(self._actor.go_on.remote(), timeout=END_S)

    def kill(self) -> None:
        """Have Ray end it."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._actor)
