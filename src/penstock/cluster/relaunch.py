"""Asks the deputy of a run before a command goes on with it, so that the run never goes on in two places.

The launcher's machine may be lost while its run folder is there, as on a shared disk. For 12 s nobody knows of it. A
command that goes on with the folder then asks the deputy twice a second, until one of these is true:

1. No deputy on a machine that is there keeps this run: the command goes on.
2. The launcher has spoken since the command asked: the run trains, and the command is refused.
3. The launcher is silent for as long as a deputy waits for it, or was on the command's own machine: the deputy leaves
   the run to the command.
4. The deputy goes on in another folder: the command is refused, and says where.
"""

import contextlib
import sys
import time
from typing import Any

import ray

from penstock.cluster.claims import release_claims
from penstock.cluster.deputy import NAMESPACE, SILENCE_S, kept_on
from penstock.cluster.listing import doors, own_name
from penstock.cluster.questions import Answer, Asker, Stand
from penstock.errors import RunFolderError
from penstock.saved_runs.launches import first_launch
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["ask_deputies"]

LOOK_S = 0.5
ANSWER_S = 2.0
"""A deputy that has not answered after so long is asked again."""
SPEAKS_S = 3.0
"""The launcher is there if it has spoken so long after the first question. What came before may have been under way."""
LIMIT_S = SILENCE_S + 8.0
"""For a takeover that has begun before the first question, and for a deputy that does not answer."""


def ask_deputies(folder: RunFolder, *, quiet: bool) -> None:
    """Wait until it is known that nobody else goes on with a run. No effect on a run that is new.

    Args:
        folder: of the run. This process has its lock, if the run is not new.
        quiet: do not say that this waits.

    Raises:
        RunFolderError: the run trains already, or another machine goes on with it.
    """
    begun = first_launch(folder)
    if begun:
        path = folder.path.resolve()
        asker = Asker(begun, str(path), own_name())
        deputies, began = _deputies(path.name), time.monotonic()
        found = [_ask(deputy, asker, path.name, began, quiet=quiet) for deputy in deputies]
        # Only now: another deputy might have refused the command.
        for deputy, answer in zip(deputies, found, strict=True):
            if answer.stand is Stand.LEFT:
                release_claims(answer.claims)
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.kill(deputy)


def _deputies(run: str) -> list[Any]:
    """The deputies of runs of this name on machines that are there, as actors."""
    listed = ray.util.list_named_actors(all_namespaces=True)
    names = [actor["name"] for actor in listed if actor["namespace"] == NAMESPACE]
    found = []
    for machine, door in doors().items():
        kept = [name for name in names if name.startswith(kept_on(run, machine))]
        # Ray lists a machine for a minute after its end. Its deputy would never answer.
        if kept and door.opens():
            for name in kept:
                # A deputy that has ended meanwhile goes on with nothing.
                with contextlib.suppress(ValueError):
                    found.append(ray.get_actor(name, namespace=NAMESPACE))
    return found


def _ask(deputy: Any, asker: Asker, run: str, began: float, *, quiet: bool) -> Answer:  # noqa: ANN401 - an actor
    """Ask one deputy until it is known what becomes of the run. ``began``: when the first deputy was asked.

    Raises:
        RunFolderError: as `ask_deputies`.
    """
    told = quiet
    while (answer := _answer(deputy, asker)) is None or answer.stand is Stand.OPEN:
        waited = time.monotonic() - began
        if answer is not None and waited - answer.silent_s > SPEAKS_S:
            raise RunFolderError(f"run {run} trains on {answer.home}; wait for its end, or end it there")
        if waited > LIMIT_S:
            if answer is None:
                # Launchers give up a deputy that is silent for less.
                return Answer(Stand.OTHER)
            raise RunFolderError(f"run {run}: {answer.here} is about to go on with it; type the command again later")
        if not told:
            sys.stderr.write(
                f"waiting about {LIMIT_S:.0f} s at most: another machine may be about to go on with run {run}\n"
            )
            told = True
        time.sleep(LOOK_S)
    if answer.stand is Stand.ELSEWHERE:
        raise RunFolderError(
            f"run {run} goes on in {answer.folder}, on {answer.here}, because its launcher's machine was lost; "
            "wait for its end, or end it there"
        )
    return answer


def _answer(deputy: Any, asker: Asker) -> Answer | None:  # noqa: ANN401 - an actor
    """What a deputy answers; ``None`` if it does not answer in time."""
    try:
        answer: Answer = ray.get(deputy.ask.remote(asker), timeout=ANSWER_S)
    except (ray.exceptions.ActorDiedError, ray.exceptions.RayTaskError, AttributeError):
        # It has ended, or is of a version that cannot be asked: its handle here has no such method.
        return Answer(Stand.OTHER)
    except ray.exceptions.RayError:
        return None
    return answer
