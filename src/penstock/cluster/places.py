"""Which machine runs which nodes: by what nodes ask for and by cores. Knows no cluster."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.cluster.crossing import sampled
from penstock.cluster.movable import movable_envs, movable_learners
from penstock.cluster.seats import answerers
from penstock.cluster.shares import shares
from penstock.config.fields import amounts_text
from penstock.errors import ConfigError, nearest
from penstock.program.graph import NodeSpec, Program

__all__ = [
    "HOME",
    "FewMachinesError",
    "Free",
    "Gpus",
    "Offer",
    "answering",
    "asked_by",
    "env_room",
    "env_shares",
    "first_places",
    "first_room",
    "free_of",
    "rooms",
    "staying_learners",
]

HOME = 0
"""Index of the launcher's machine among the offers."""
_GPU = "gpu"
_ROUNDING = 1e-9
_NAMED = 4
"""Most machines that an error names."""


class FewMachinesError(ConfigError):
    """Too few environment processes or learners have room for what they ask for. More machines would change that."""


class Offer(NamedTuple):
    """A machine and its resources."""

    name: str
    resources: Mapping[str, float]
    """``cpu``, ``gpu`` and names of the cluster's own -> amount."""


class Free(NamedTuple):
    """What a machine has left."""

    amounts: Mapping[str, float]
    """All resources but ``gpu``; below 0 if more is asked for than there is."""
    gpus: Sequence[float]
    """What is left of each GPU. Ray takes a part of a GPU from one of them: 0.2 of each of two GPUs are no 0.4."""

    def without(self, asked: Mapping[str, float]) -> "Free":
        """What is left after one more node that asks for ``asked``.

        Of the GPUs with enough room, Ray takes those with the least left. If too few have enough room, the node takes
        nothing of any GPU.
        """
        amounts = dict(self.amounts)
        for name in asked.keys() - {_GPU}:
            amounts[name] = amounts.get(name, 0.0) - asked[name]
        gpus, wanted = list(self.gpus), asked.get(_GPU, 0.0)
        part = min(wanted, 1.0)
        able = sorted((index for index, left in enumerate(gpus) if left + _ROUNDING >= part), key=gpus.__getitem__)
        count = math.ceil(wanted)
        if count <= len(able):
            for index in able[:count]:
                gpus[index] -= part
        return Free(amounts, gpus)


class Gpus:
    """The GPUs of learners: each takes the first one that no other learner of its machine has.

    Their number is not known here. A machine with fewer GPUs than learners begins again with its first one.
    """

    def __init__(self) -> None:
        self._taken: dict[str, tuple[object, int]] = {}
        """Learner -> its machine, and the index of its GPU there."""

    def of(self, learner: str, machine: object) -> int:
        """The index of a learner's GPU on its machine. A learner that stays on its machine keeps its GPU."""
        there = {name: index for name, (where, index) in self._taken.items() if where is machine}
        if learner not in there:
            free = next(index for index in range(len(there) + 1) if index not in there.values())
            self._taken[learner] = machine, free
        return self._taken[learner][1]


def asked_by(program: Program, group: str) -> Mapping[str, float]:
    """What the nodes of a placement group ask for; empty if nothing."""
    kinds = {_kind(node) for node in program.members(group)}
    # No group that asks for anything has nodes of two kinds: see `movable_envs`.
    return next((program.demands[kind] for kind in kinds if kind in program.demands), {})


def answering(program: Program) -> list[Mapping[str, float]]:
    """What each policy node of a machine asks for; empty if nothing."""
    # Those of games answer no environment node that may move, and run at home.
    asked = program.demands.get("policy")
    return [asked for _ in answerers(program)] if asked else []


def staying_learners(program: Program) -> tuple[str, ...]:
    """The groups of learners that run on the launcher's machine, whatever other machines there are."""
    moving = movable_learners(program)
    return tuple(node.group for node in program.nodes if _kind(node) == "learner" and node.group not in moving)


def free_of(resources: Mapping[str, float], held: Iterable[Mapping[str, float]] = ()) -> Free:
    """What is left of a machine's resources.

    Args:
        resources: of the machine.
        held: what nodes there ask for, in the order in which it is claimed for them.
    """
    amounts = {name: amount for name, amount in resources.items() if name != _GPU}
    free = Free(amounts, (1.0,) * int(resources.get(_GPU, 0.0)))
    for asked in held:
        free = free.without(asked)
    return free


def rooms(free: Free, asked: Mapping[str, float]) -> float:
    """How many nodes that ask for these amounts have room; infinite if they ask for nothing."""
    counts = (
        _gpu_rooms(free.gpus, amount) if name == _GPU else _times(amount, free.amounts.get(name, 0.0))
        for name, amount in asked.items()
    )
    return min(counts, default=math.inf)


def _gpu_rooms(gpus: Sequence[float], amount: float) -> int:
    """How many nodes find a part of a GPU, or several whole ones."""
    if amount <= 1.0:
        return sum(_times(amount, left) for left in gpus)
    return sum(_times(1.0, left) for left in gpus) // int(amount)


def _times(amount: float, left: float) -> int:
    return math.floor(left / amount + _ROUNDING)


def env_room(program: Program, free: Free) -> float:
    """How many environment processes have room on a machine, beside its policy nodes; infinite if they ask for nothing.

    Args:
        program: says what both ask for.
        free: what others leave of the machine. Policy nodes are not among them.
    """
    for asked in answering(program):
        if rooms(free, asked) < 1:
            return 0
        free = free.without(asked)
    return max(0, rooms(free, program.demands.get("env", {})))


def first_places(program: Program, offers: Sequence[Offer]) -> dict[str, int]:
    """Where learners and movable groups run when the run begins: group -> index of the machine.

    Args:
        program: of home, or as `penstock.cluster.apart` made it.
        offers: the launcher's machine, then all others.

    Raises:
        FewMachinesError: too few environment processes, or learners that may run elsewhere, have room for what they ask
            for.
        ConfigError: the launcher's machine has no room for the learners that stay on it.
    """
    found = _learner_places(program, offers)
    envs = movable_envs(program)
    counts = env_shares(program, _free_beside(program, offers, found))
    if sum(counts) < len(envs):
        raise FewMachinesError(str(_few(program, sum(counts), offers)))
    places = [index for index, count in enumerate(counts) for _ in range(count)]
    return found | dict(zip(envs, places, strict=True))


def first_room(program: Program, offers: Sequence[Offer]) -> float:
    """How many environment processes have room beside the learners when the run begins; all of them at most.

    Args:
        program: of home, or as `penstock.cluster.apart` made it.
        offers: the launcher's machine, then all others.

    Raises:
        FewMachinesError: too few learners that may run elsewhere have room for what they ask for.
        ConfigError: the launcher's machine has no room for the learners that stay on it.
    """
    count = len(movable_envs(program))
    free = _free_beside(program, offers, _learner_places(program, offers))
    return min(count, sum(min(env_room(program, one), count) for one in free))


def _learner_places(program: Program, offers: Sequence[Offer]) -> dict[str, int]:
    """Where learners run when the run begins: group -> index of the machine. It raises as `first_room` does."""
    moving, here = movable_learners(program), staying_learners(program)
    asked = program.demands.get("learner", {})
    if rooms(free_of(offers[HOME].resources), asked) < len(here):
        which = "the first learner runs" if len(here) == 1 else f"{len(here)} learners run"
        what_to_do = "begin the run on one that has it, or by `ray job submit`"
        if len(here) > 1 and len(offers) == 1:
            what_to_do += ", or once other machines have joined: learners go only to those that are there at the start"
        why = f"{which} on the launcher's machine, which has too little of that: ask for less, or {what_to_do}"
        raise _refusal(program, "learner", why, offers)
    found = dict.fromkeys(here, HOME)
    # Home holds the whole table, and in it the shard of the first learner. The other shards are on other machines.
    elsewhere = sampled(program) is not None and len(offers) > 1
    turns = list(range(1 if elsewhere else 0, len(offers)))
    turn = 0 if elsewhere else 1
    for group in moving:
        order = [turns[(turn + step) % len(turns)] for step in range(len(turns))]
        free = _free_beside(program, offers, found)
        place = next((index for index in order if rooms(free[index], asked) >= 1), None)
        if place is None:
            what_to_do = "" if program.min_workers else ": add a machine first, or give --min_workers to wait for one"
            where = " on another machine than the launcher's" if elsewhere else ""
            why = f"there is no room for {group}{where}{what_to_do}"
            raise FewMachinesError(str(_refusal(program, "learner", why, offers)))
        found[group] = place
        turn = turns.index(place) + 1
    return found


def env_shares(program: Program, free: Sequence[Free]) -> list[int]:
    """How many environment processes each machine runs: by their demands if they have any, else by cores.

    Args:
        program: its movable groups are shared out.
        free: what learners leave of each machine. Policy nodes are counted here: each machine that runs environment
            processes has as many, and one without room for them runs none.

    Returns:
        One number for each machine. Their sum is the number of processes; some may share the room of others. If fewer
        processes have room than must have it (`Program.min_workers`), the numbers are the room of each machine.
    """
    count, asked = len(movable_envs(program)), program.demands.get("env")
    # A machine with room for all of them counts for no more than that.
    weights = [min(env_room(program, one), count) for one in free]
    if asked is None:
        cores = [one.amounts.get("cpu", 0.0) if weight else 0.0 for one, weight in zip(free, weights, strict=True)]
        return shares(count, cores) if all(weights) or any(cores) else [0 for _ in free]
    needed = count if program.min_workers is None else min(count, program.min_workers)
    return shares(count, weights) if sum(weights) >= needed else [int(weight) for weight in weights]


def _free_beside(program: Program, offers: Sequence[Offer], placed: Mapping[str, int]) -> list[Free]:
    """What groups that have their places leave of each machine."""
    held = [
        [asked_by(program, group) for group, place in placed.items() if place == index] for index in range(len(offers))
    ]
    return [free_of(offer.resources, asked) for offer, asked in zip(offers, held, strict=True)]


def _kind(node: NodeSpec) -> str:
    """``env``, ``learner``, ``policy``, or empty: it asks for nothing."""
    if node.name.partition(".")[0] == "learner":
        return "learner"
    return {"env": "env", "policy_node": "policy"}.get(node.kind, "")


def _few(program: Program, room: int, offers: Sequence[Offer]) -> ConfigError:
    """The refusal of a run of which only ``room`` environment processes have room."""
    if "env" not in program.demands:
        count = len(answerers(program))
        what = "the policy node" if count == 1 else f"the {count} policy nodes"
        return _refusal(program, "policy", f"no machine with a core has room for {what} that it needs", offers)
    count = len(movable_envs(program))
    needed = f"{count} processes ask for it"
    if program.min_workers is not None:
        needed = f"{program.min_workers} of {count} processes need room (--min_workers)"
    beside = " beside what policy nodes ask for on each machine" if answering(program) else ""
    return _refusal(program, "env", f"{needed}, and {room} have room{beside}", offers)


def _refusal(program: Program, kind: str, why: str, offers: Sequence[Offer]) -> ConfigError:
    asked = program.demands[kind]
    has = [f"{offer.name} {amounts_text(_told(offer.resources, asked))}" for offer in offers[:_NAMED]]
    more = [f"{len(offers) - _NAMED} more"] if len(offers) > _NAMED else []
    # Ray counts these two by itself. A cluster without GPUs has no resource of that name.
    known = sorted({"cpu", "gpu", *(name for offer in offers for name in offer.resources)})
    meant = "".join(nearest(name, known, count=1) for name in asked if name not in known)
    return ConfigError(
        f"--resources {kind}: {amounts_text(asked)}: {why}; the cluster has {', '.join(has + more)}{meant}"
    )


def _told(resources: Mapping[str, float], asked: Mapping[str, float]) -> dict[str, float]:
    """Resources without those that Ray adds by itself, unless they are asked for."""
    own = {"memory", "object_store_memory"}
    told = [name for name in sorted(resources) if name in asked or (name not in own and ":" not in name)]
    return {name: resources[name] for name in told}
