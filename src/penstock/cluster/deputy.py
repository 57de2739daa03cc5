"""The deputy of a launcher: it keeps a copy of the run folder, and resumes the run if the launcher's machine is lost.

It is the class of a Ray actor that outlives its launcher. It asks nothing of Ray, which notices a lost machine late.
`penstock.cluster.safekeeping` is its counterpart on the launcher's machine.
"""

import contextlib
import logging
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import ray

from penstock.cluster.claims import release_claims
from penstock.cluster.copies import Copy, Delivery
from penstock.cluster.door import Door
from penstock.cluster.questions import Answer, Asker, Stand
from penstock.processes.working_directory import leave_removed_directory
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.leftovers import take_back_where_it_goes_on, tell_where_it_goes_on
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["NAMESPACE", "SILENCE_S", "Charge", "Deputy", "kept_on"]

log = logging.getLogger("penstock.cluster")

NAMESPACE = "penstock"
"""The namespace of Ray in which deputies have their names."""
SILENCE_S = 12.0
"""After so long without a word from the launcher, the deputy looks whether the launcher's machine is there.

If a deputy does not answer, the launcher gives it up before that, and has Ray end it. So where both still reach Ray's
head, only one of them goes on.
"""
ENDED_S = 20.0
"""After so long without a word, a launcher whose machine is there has ended."""
LOOK_S = 0.5
LOG = "deputy.log"
"""File of the run folder with what the resumed run says."""
ELSEWHERE = "penstock-logs"
"""Folder of the user's home for run folders, where ``--log_dir`` cannot be made."""
REFUSED = 2
"""Exit code of a resume that was refused. Ray may still keep resources for nodes of the lost launcher's run."""
TRIES = 4
PAUSE_S = 10.0
WORD_S = 5.0
"""How long a launcher whose machine is there again may take to say that it has ended the run."""
TURN_S = 3.0
"""If a command has asked for the run within this time, the deputy waits for this much longer before it goes on.

So the command can ask once more, and get the run.
"""


def kept_on(run: str, machine: str) -> str:
    """How the names of the deputies that keep a run of this name on a machine begin."""
    return f"{run}, kept on {machine} ("


class Charge(NamedTuple):
    """What a deputy is entrusted with."""

    name: str
    """Of the run."""
    begun: str
    """The run's `first_launch`."""
    log_dir: str
    working_directory: str
    """Of the launcher. Here it is the same folder, if there is one."""
    path: tuple[str, ...]
    """Folders from which the launcher imports, besides those of its Python."""
    home: str
    """The launcher's machine, for messages."""
    door: Door
    """Of that machine."""
    here: str
    """The deputy's machine, for messages."""
    cluster: str
    """The address of Ray's head."""
    claims: str
    """`Claims.run` of the run."""


class Deputy:
    """Watches a launcher from another machine.

    1. The launcher delivers what the copy lacks, or nothing, every second.
    2. If the launcher ends, it says so, and the copy is removed. If it was killed, it is silent, but its machine is
       there: the copy is removed, too.
    3. If its machine is lost, it is silent, and Ray does not answer there. The copy becomes a run folder, and is
       resumed.
    4. If its machine was cut off for a short time, the launcher has ended the run. It says so, and the copy is resumed,
       although the launcher's machine is there.
    5. If a command wants to go on with the run folder itself, and the launcher is silent, the command has the run.

    Args:
        charge: what it is entrusted with.
    """

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._copy = _copy(charge)
        self._lock = threading.Lock()
        self._heard = time.monotonic()
        self._asked = -math.inf
        """When a command last asked for the run."""
        self._handed_over = threading.Event()
        self._goes_on: Path | None = None
        """The folder in which it goes on with the run."""
        threading.Thread(target=self._watch, daemon=True).start()

    def take(self, delivery: Delivery) -> tuple[str, ...]:
        """Take what the copy lacks. Returns the checkpoints that it has. Raises as `Copy.take`."""
        with self._lock:
            self._heard = time.monotonic()
            try:
                return self._copy.take(delivery)
            except OSError:
                # Another machine gets the next copy.
                self._copy.remove()
                raise

    def end(self) -> None:
        """The run has ended: remove the copy."""
        with self._lock:
            self._copy.remove()

    def go_on(self) -> None:
        """The launcher was cut off, and has ended the run: go on with it, although the launcher's machine is there."""
        self._handed_over.set()

    def ask(self, asker: Asker) -> Answer:
        """Answer a command that wants to go on with the run. The answer may leave the run to the command.

        The command gets the run in two cases, unless the launcher has handed the run over to this deputy:

        - The launcher is silent.
        - The command runs on the launcher's machine. It has the lock of the run folder there, so the launcher is dead.

        This answer and a takeover are both decided under the lock of the copy. So either this deputy goes on with the
        run, or the command does.
        """
        charge = self._charge
        if (asker.begun, asker.folder) != (charge.begun, str(Path(charge.log_dir) / charge.name)):
            return Answer(Stand.OTHER)
        self._asked = time.monotonic()
        if self._goes_on is not None:
            if (asker.machine, Path(asker.folder)) == (charge.here, self._goes_on):
                return Answer(Stand.OTHER)
            return self._answer(Stand.ELSEWHERE)
        if self._may_leave_to(asker) and self._lock.acquire(timeout=LOOK_S):
            try:
                # Race, so look again:
                # 1. The launcher is silent, and this thread waits for the lock.
                # 2. The launcher delivers something, or hands the run over.
                # 3. This thread gets the lock.
                if self._may_leave_to(asker):
                    # There is nothing left to go on with.
                    self._copy.remove()
                    return self._answer(Stand.LEFT)
            finally:
                self._lock.release()
        return self._answer(Stand.OPEN)

    def _may_leave_to(self, asker: Asker) -> bool:
        is_lost = asker.machine == self._charge.home or self._silent_s() > SILENCE_S
        return is_lost and not self._handed_over.is_set()

    def _answer(self, stand: Stand) -> Answer:
        charge = self._charge
        folder = "" if self._goes_on is None else str(self._goes_on)
        return Answer(stand, self._silent_s(), folder, charge.home, charge.here, charge.claims)

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_S)
            if self._handed_over.is_set() or (self._silent_s() > self._patience_s() and not self._charge.door.opens()):
                with self._lock:
                    # The launcher may have spoken while this thread tried to reach its machine. So look again.
                    if self._handed_over.is_set() or self._silent_s() > SILENCE_S:
                        try:
                            self._take_over()
                        except Exception:  # a full disk, say; the actor must end all the same
                            log.exception("the run cannot go on here")
                        _leave()
            elif self._silent_s() > ENDED_S:
                self.end()
                _leave()

    def _silent_s(self) -> float:
        return time.monotonic() - self._heard

    def _patience_s(self) -> float:
        """How long the launcher may be silent until this deputy looks for it."""
        return SILENCE_S + TURN_S if time.monotonic() - self._asked < TURN_S else SILENCE_S

    def _take_over(self) -> None:
        if self._copy.checkpoints():
            self._go_on(self._copy.settle())
        else:
            self._copy.remove()

    def _go_on(self, folder: RunFolder) -> None:
        """Resume the run, and wait for its end. There are ``TRIES`` tries.

        Each of them:

        1. If Ray's head does not answer, nothing is resumed in this try.
        2. If the head and the launcher's machine both answer, only this machine was cut off. Then this returns, and the
           run goes on at the launcher, unless the launcher hands it over.
        3. Otherwise ``penstock resume`` runs here. If it is refused, the next try follows.
        """
        charge = self._charge
        old = RunFolder(folder.path.with_name(charge.name))
        head = Door.at(charge.cluster)
        why = "Ray's head does not answer"
        for _ in range(TRIES):
            if head.opens():
                # If the launcher's machine was cut off as well, the launcher may still hand the run over. Its machine
                # can be reached some time before this call of it arrives. So wait for the call.
                if charge.door.opens() and not self._handed_over.wait(WORD_S):
                    _say(folder, f"{charge.home} is there: {charge.here} was cut off. The run goes on there")
                    return
                how = "was cut off" if self._handed_over.is_set() else "was lost"
                place = f"in {folder.path}, from {list_checkpoints(folder.path)[-1].name}"
                _say(folder, f"{charge.home}, the launcher's, {how}. {charge.here} goes on {place}")
                # In a thread, because Ray does not answer if its head is lost meanwhile.
                threading.Thread(target=release_claims, args=(charge.claims,), daemon=True).start()
                # Not cleared when a resume is refused and tried again: no command may take the run in between.
                self._goes_on = folder.path
                tell_where_it_goes_on(old, folder, charge.here)
                if _resume(charge, folder) != REFUSED:
                    return
                take_back_where_it_goes_on(old, folder, charge.here)
                why = "resuming it was refused each time; the end of deputy.log says why"
            time.sleep(PAUSE_S)
        _say(folder, f"{charge.here} does not go on: {why}. penstock resume {folder.path} does, on a cluster with room")


def _say(folder: RunFolder, line: str) -> None:
    with folder.deaths.open("a", encoding="utf-8") as log:
        log.write(f"{line}\n\n")


def _copy(charge: Charge) -> Copy:
    """A copy in the launcher's log directory, as this machine has it, else below the user's home."""
    try:
        return Copy(Path(charge.log_dir), charge.name, charge.begun)
    except OSError:
        return Copy(Path.home() / ELSEWHERE, charge.name, charge.begun)


def _resume(charge: Charge, folder: RunFolder) -> int:
    """Run ``penstock resume`` to its end. Returns its exit code."""
    path = [entry for entry in (os.environ.get("PYTHONPATH"), *charge.path) if entry]
    environment = {**os.environ, "RAY_ADDRESS": charge.cluster, "PYTHONPATH": os.pathsep.join(path)}
    if not environment.get("CUDA_VISIBLE_DEVICES"):
        # Ray hides all GPUs from an actor that asks for none.
        environment.pop("CUDA_VISIBLE_DEVICES", None)
    with (folder.path / LOG).open("ab") as log:
        return subprocess.run(
            [sys.executable, "-P", "-m", "penstock", "resume", str(folder.path), "--address", "auto"],
            env=environment,
            cwd=_directory(charge, folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode


def _directory(charge: Charge, folder: RunFolder) -> Path:
    """The working directory of a resume: where the user's own code was brought, else the launcher's, if it is here."""
    if ray.get_runtime_context().runtime_env.get("working_dir"):
        leave_removed_directory()
        return Path.cwd()
    directory = Path(charge.working_directory)
    return directory if directory.is_dir() else folder.path


def _leave() -> None:
    """End this actor."""
    with contextlib.suppress(ray.exceptions.RayError):
        ray.kill(ray.get_runtime_context().current_actor)
    # Where Ray's head is lost, nobody ends it.
    os._exit(0)
