"""The machines that take part in a run: those that are there when it begins, and those that join while it goes on."""

import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from typing import Any, Protocol

from penstock.cluster.door import Door
from penstock.cluster.listing import own_offer, present
from penstock.cluster.machines import Machine, machines
from penstock.cluster.messages import Facts, facts
from penstock.cluster.ray_errors import line_of
from penstock.cluster.troubles import Troubles
from penstock.errors import ConfigError
from penstock.program.graph import Program

__all__ = ["Members", "takes_part"]

LOOK_S = 2.0
"""How often home looks for machines that have joined the cluster."""
RETURNS = 3
"""How often a machine that was given up may take part again."""


class Candidate(Protocol):
    """A machine that may take part."""

    name: str
    door: Door

    def facts(self) -> Facts:
        """The facts of the machine. Waits for them.

        Raises:
            ConfigError: they do not come.
        """
        ...

    def lost(self) -> bool:
        """Whether the cluster no longer has this machine."""
        ...


def takes_part(machine: Candidate, bits: str | None) -> bool:
    """False if the machine is lost while the run begins; Ray may list it for a minute after its end.

    Raises:
        ConfigError: the machine is there, and cannot be a part of this run.
    """
    if not machine.door.opens():
        return False
    try:
        why = _refusal(machine, same_bits=bits)
    except ConfigError:
        if machine.lost():
            return False
        raise
    if why is not None:
        raise ConfigError(why)
    return True


class Members:
    """The machines of a run, and those that join while it goes on.

    Args:
        program: of each host.
        machines: the first ones. Those that join are added to this list.
        bits: why machines must compute the same bits; ``None`` if they need not.
    """

    def __init__(self, program: Program, machines: list[Machine], bits: str | None) -> None:
        self._program = program
        self._bits = bits
        self._known = {machine.id for machine in machines}
        self._given_up: set[Machine] = set()
        self._returns: Counter[str] = Counter()
        self._looked = time.monotonic()
        self._looking = threading.Thread()
        self._troubles = Troubles(program.deaths, "looking for machines that have joined the cluster")
        self._found: deque[_Joining] = deque()
        self._starting: list[_Joining] = []
        self._all = machines
        self.machines = list(machines)
        """Machines that take part."""
        self.home = own_offer()

    def joined(self, lost: Collection[Machine]) -> tuple[list[Machine], list[str]]:
        """Machines that have joined since the last call, and a line for each that cannot take part.

        Args:
            lost: those that were given up so far. One that is there all the same joins again, with a new host.
        """
        now = time.monotonic()
        if now - self._looked > LOOK_S and not self._looking.is_alive():
            self._looked = now
            # In a thread, because Ray does not answer for minutes if its head is out of reach.
            given_up = set(lost) - self._given_up
            self._looking = threading.Thread(
                target=self._troubles.survived, args=(lambda: self._look(given_up),), daemon=True
            )
            self._looking.start()
        while self._found:
            self._starting.append(self._found.popleft())
        ready = [one for one in self._starting if one.answered]
        self._starting = [one for one in self._starting if not one.answered]
        refused = [one.refusal for one in ready if one.refusal is not None]
        found = [one.machine for one in ready if one.refusal is None]
        self.machines += found
        return found, refused

    def _look(self, lost: Collection[Machine]) -> None:
        """Start a host on each machine that is new, or was given up and is there."""
        here = present()
        for machine in lost:
            # Once Ray has given a machine up, it never lists this id again: knocking there would only cost time.
            if machine.id in here and self._returns[machine.id] < RETURNS and machine.door.opens():
                self._given_up.add(machine)
                self._returns[machine.id] += 1
                self._known.discard(machine.id)
        for machine in machines(self._program, self._known):
            joining = _Joining(machine, same_bits=self._bits)
            # A machine whose host was not asked is new at the next look, too.
            self._known.add(machine.id)
            self._all.append(machine)
            self._found.append(joining)


class _Joining:
    """A machine that has joined, until its host answers.

    Attributes:
        answered: whether the host has answered, or has failed to start.
        refusal: then, why the machine cannot be a part of this run; ``None`` if it can.
    """

    def __init__(self, machine: Machine, *, same_bits: str | None) -> None:
        self.machine = machine
        self.answered = False
        self.refusal: str | None = None
        self._same_bits = same_bits
        machine.call("facts", self._reply)

    def _reply(self, result: Any, error: BaseException | None) -> None:  # noqa: ANN401 - as `Machine.call` says
        if error is not None:
            self.refusal = f"{self.machine.name} cannot take part: {line_of(error)}"
        else:
            self.refusal = _refused(self.machine.name, result, same_bits=self._same_bits)
        # Last: the supervisor reads the rest once this is set.
        self.answered = True


def _refusal(machine: Candidate, *, same_bits: str | None) -> str | None:
    """Why a machine cannot be a part of this run; ``None`` if it can. Waits for its host to start."""
    return _refused(machine.name, machine.facts(), same_bits=same_bits)


def _refused(machine: str, found: Facts, *, same_bits: str | None) -> str | None:
    """Why a machine with these facts cannot be a part of this run; ``None`` if it can.

    Args:
        machine: its name.
        found: its facts.
        same_bits: see `penstock.cluster.crossing.same_bits`.
    """
    here = facts()
    for what, there, ours in (
        ("penstock", found.penstock, here.penstock),
        ("Python", found.python, here.python),
    ):
        if there != ours:
            return f"{machine} has {what} {there}, and the launcher's machine has {ours}; install the same there"
    if found.code != here.code:
        return (
            f"{machine} has other code of penstock than the launcher's machine, although both have version "
            f"{here.penstock}; install the same there"
        )
    if same_bits is not None and found.instruction_set != here.instruction_set:
        return (
            f"{machine} computes with {found.instruction_set}, and the launcher's machine with "
            f"{here.instruction_set}; {same_bits}"
        )
    return None
