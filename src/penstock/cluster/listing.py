"""The machines that Ray lists: their names, their resources, and which of them could take part in a run."""

import socket
import time
from collections.abc import Mapping
from typing import Any

import ray

from penstock.cluster.door import Door
from penstock.cluster.messages import Facts
from penstock.cluster.places import Offer, free_of, rooms
from penstock.cluster.ray_errors import line_of
from penstock.errors import ConfigError
from penstock.program.graph import Program

__all__ = [
    "Listed",
    "alone",
    "cluster_address",
    "cores",
    "doors",
    "is_here",
    "offers",
    "others",
    "own_address",
    "own_door",
    "own_id",
    "own_name",
    "own_offer",
    "present",
    "ray_names",
    "with_cores",
]

FACTS_LIMIT_S = 120.0
LOST_S = 10.0
_RAY_NAMES = {"cpu": "CPU", "gpu": "GPU"}


class Listed:
    """A machine that Ray lists.

    Attributes:
        name: its address and the beginning of its id, for messages.
        offer: its resources, as Ray counts them.
        door: where Ray listens on it.
    """

    def __init__(self, node: dict[str, Any]) -> None:
        self.id: str = node["NodeID"]
        self.name = _name(node)
        self.offer = Offer(self.name, _resources(node))
        self.door = Door.of(node)

    def told(self, facts: ray.ObjectRef) -> Facts:
        """Wait for the facts of the machine.

        Raises:
            ConfigError: they do not come.
        """
        try:
            found: Facts = ray.get(facts, timeout=FACTS_LIMIT_S)
        except (ray.exceptions.RayError, TimeoutError) as error:
            raise ConfigError(f"{self.name} cannot take part: {line_of(error)}") from None
        return found

    def lost(self) -> bool:
        """Whether the cluster no longer has this machine. Waits for some seconds until Ray has noticed."""
        until = time.monotonic() + LOST_S
        while any(node["NodeID"] == self.id and node["Alive"] for node in ray.nodes()):
            if time.monotonic() > until:
                return False
            time.sleep(0.2)
        return True


def with_cores() -> list[dict[str, Any]]:
    """The launcher's machine and the others, by their ids, as Ray lists them; without those that have no core."""
    able = [node for node in ray.nodes() if node["Alive"] and _resources(node).get("cpu", 0.0) > 0]
    return sorted(able, key=lambda node: (node["NodeID"] != own_id(), str(node["NodeID"]))) or [_own()]


def cores() -> int | None:
    """The cores of all machines of the cluster; ``None`` if this one is the only one."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return int(sum(_resources(node).get("cpu", 0.0) for node in alive)) if len(alive) > 1 else None


def present() -> set[str]:
    """The ids of the machines that Ray takes for alive."""
    return {str(node["NodeID"]) for node in ray.nodes() if node["Alive"]}


def doors() -> dict[str, Door]:
    """The name of each machine that Ray takes for alive -> where Ray listens on it."""
    return {_name(node): Door.of(node) for node in ray.nodes() if node["Alive"]}


def others(program: Program, known: set[str]) -> list[dict[str, Any]]:
    """Other machines with a core, or with what a node asks for, by their ids."""

    def able(resources: Mapping[str, float]) -> bool:
        free = free_of(resources)
        return resources.get("cpu", 0.0) > 0 or any(rooms(free, asked) >= 1 for asked in program.demands.values())

    apart = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in {*known, own_id()}]
    return sorted((node for node in apart if able(_resources(node))), key=lambda node: str(node["NodeID"]))


def alone(program: Program) -> bool:
    """Whether the launcher's machine is the only one of the cluster that could run anything."""
    return not others(program, set())


def offers(program: Program) -> list[Offer]:
    """The launcher's machine, and the others that could run a part of the program."""
    return [own_offer(), *(Offer(_name(node), _resources(node)) for node in others(program, set()))]


def own_offer() -> Offer:
    """The resources of the launcher's machine."""
    return Offer("the launcher's machine", _resources(_own()))


def cluster_address() -> str:
    """The address of the cluster's head, as ``--address`` takes it."""
    return str(ray.get_runtime_context().gcs_address)


def own_address() -> str:
    """The address of the launcher's machine, as other machines reach it."""
    return str(_own()["NodeManagerAddress"])


def is_here(address: str) -> bool:
    """Whether an address is one of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def own_door() -> Door:
    """Where Ray listens on the launcher's machine."""
    return Door.of(_own())


def own_name() -> str:
    """The name of the launcher's machine, for messages on other machines."""
    return _name(_own())


def own_id() -> str:
    """Ray's id of the launcher's machine."""
    return str(ray.get_runtime_context().get_node_id())


def ray_names(asked: Mapping[str, float]) -> dict[str, float]:
    """Resources under Ray's names."""
    return {_RAY_NAMES.get(name, name): amount for name, amount in asked.items()}


def _own() -> dict[str, Any]:
    here: dict[str, Any] = next(node for node in ray.nodes() if node["NodeID"] == own_id())
    return here


def _name(node: Mapping[str, Any]) -> str:
    return f"machine {node['NodeManagerAddress']} ({node['NodeID'][:8]})"


def _resources(node: Mapping[str, Any]) -> dict[str, float]:
    names = {theirs: ours for ours, theirs in _RAY_NAMES.items()}
    return {names.get(name, name): float(amount) for name, amount in node["Resources"].items()}
