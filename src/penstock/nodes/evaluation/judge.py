"""JudgeNode: hands out the episodes of an evaluation in order, commits their results, and shows the progress.

It plays no episode itself: `PlayerNode` does.

Each ticket is answered: played, spoilt, or too late. No episode is lost if a player dies:

1. A player first sends the answer to a ticket, and then releases the ticket.
2. If it dies before that, the ticket is left. Its next life plays the ticket again, with the same result.
3. If it dies in between, the ticket is answered twice. The second answer is ignored.
"""

import math
import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from penstock.errors import EnvError
from penstock.metrics.evaluation import EvaluationDisplay, Progress, evaluation_display
from penstock.nodes.contract import Ports
from penstock.nodes.evaluation.tickets import ALWAYS_PLAYED, Ending
from penstock.types import Arrays

__all__ = ["JudgeNode", "JudgeSettings"]

LOOK_S = 0.1
"""Seconds between two looks at the clock while no answer comes."""


@dataclass(frozen=True)
class JudgeSettings:
    """Which policy is judged, by how many episodes."""

    env: str
    """Name of the environment, for messages."""
    published: Arrays
    """The published parameters and statistics that are judged."""
    episodes: int
    seconds: float | None
    """Seconds after which only the first episodes may still begin; ``None``: no limit."""
    stall_timeout: float
    """Seconds without an answer after which the evaluation is given up."""
    quiet: bool
    """No display."""
    first: int = 0
    """Number of the first episode. The record begins with it."""


class JudgeNode:
    """Writes stream ``tickets``, board ``policy`` and record ``evaluation``; reads stream ``episodes``."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._display: EvaluationDisplay | None = None

    def open(self, ports: Ports) -> None:
        """Publish the policy. Go on after the last commit of an earlier life."""
        settings = self._settings
        self._ports = ports
        self._tickets = ports.stream_writer("tickets")
        self._answers = ports.stream_reader("episodes")
        self._record = ports.record("evaluation")
        self._begun = self._latest = self._looked = time.monotonic()
        self._finished = self._playing = False
        if not settings.quiet:
            self._display = evaluation_display(settings.episodes)
        ports.board_writer("policy").publish(settings.published, 0)
        committed = self._record.current() if ports.former else None
        if committed is None:
            until = math.inf if settings.seconds is None else self._begun + settings.seconds
            self._commit({"ending": Ending.UNKNOWN, "episode_return": 0.0, "length": 0, "until": until})
        # Read the tickets before the answers: a ticket that is gone by now has its answer already.
        waiting = set(self._tickets.written())
        self._collect()
        unknown = np.flatnonzero(self._found()["ending"] == Ending.UNKNOWN).tolist()
        self._out = waiting & set(unknown)
        """Episodes whose ticket is handed out and not answered yet."""
        self._queue = deque(number for number in unknown if number not in waiting)
        """Episodes whose ticket is not handed out yet."""

    def ready(self) -> bool:
        """True if an answer is waiting, a ticket can be handed out, or it is time to look at the clock."""
        if self._finished:
            return False
        handing_out = bool(self._queue) and self._tickets.free() > 0
        return handing_out or self._answers.ready() > 0 or time.monotonic() >= self._looked + LOOK_S

    def step(self) -> None:
        """Take all waiting answers, and hand out the next tickets.

        Raises:
            EnvError: no episode has ended for too long.
        """
        self._looked = time.monotonic()
        self._collect()
        self._hand_out()
        self._show()
        if self._ports.stopping() or not (self._queue or self._out):
            self._finished = True
            self._ports.finished()
        else:
            self._see_that_it_goes_on()

    def close(self) -> None:
        """Close the display."""
        if self._display is not None:
            self._display.close()
            self._display = None

    def _found(self) -> Arrays:
        committed = self._record.current()
        return {} if committed is None else committed.arrays

    def _commit(self, values: dict[str, object]) -> None:
        new = self._record.begin()
        for name, value in values.items():
            new[name][...] = value
        self._record.commit(self._record.number() + 1)

    def _collect(self) -> None:
        """Commit all waiting answers, then release their slots."""
        taken = []
        while (index := self._answers.take()) is not None:
            taken.append(index)
        if not taken:
            return
        found = {name: values.copy() for name, values in self._found().items()}
        for index in taken:
            answer = self._answers.slot(index)
            number = int(answer["number"]) - self._settings.first
            if found["ending"][number] == Ending.UNKNOWN:
                for name in answer.keys() - {"number"}:
                    found[name][number] = answer[name]
        self._latest = time.monotonic()
        self._commit(dict(found))
        for index in taken:
            self._answers.release(index)

    def _hand_out(self) -> None:
        """Hand out tickets in the order of their numbers, as long as slots are free.

        Whether an episode begins depends only on how long earlier episodes took. Each episode that begins is counted,
        however late it ends. So the mean favours neither short episodes nor long ones.
        """
        found = self._found()
        ending, until = found["ending"], float(found["until"])
        self._out = {number for number in self._out if ending[number] == Ending.UNKNOWN}
        while self._queue and not self._ports.stopping():
            number = self._queue[0]
            if number >= ALWAYS_PLAYED and time.monotonic() > until:
                self._queue.clear()
                return
            index = self._tickets.claim(number)
            if index is None:
                return
            ticket = self._tickets.slot(index)
            ticket["number"][...] = self._settings.first + number
            ticket["until"][...], ticket["begun"][...] = until, False
            self._tickets.push(index)
            self._out.add(number)
            self._queue.popleft()

    def _show(self) -> None:
        if self._display is None:
            return
        found = self._found()
        returns = found["episode_return"][found["ending"] == Ending.PLAYED]
        mean, now = float(returns.mean()) if len(returns) else None, time.monotonic()
        # Once the time is over, only those begin that are always played.
        still = sum(number < ALWAYS_PLAYED for number in self._queue)
        left = len(self._out) + still if now > float(found["until"]) else None
        self._display.show(Progress(len(returns), mean, now - self._begun, left))

    def _see_that_it_goes_on(self) -> None:
        settings = self._settings
        if not self._playing:
            # The timeout begins with the first episode: making environments may take long.
            self._playing = any(self._tickets.slot(index)["begun"] for index in self._tickets.written().values())
            self._latest = self._looked
        if self._looked - self._latest <= settings.stall_timeout:
            return
        known = int((self._found()["ending"] == Ending.PLAYED).sum())
        waited = f"no episode of {settings.env} has ended for {settings.stall_timeout:g} s (--stall_timeout)"
        raise EnvError(f"the evaluation was given up: {waited}; {known} had before")
