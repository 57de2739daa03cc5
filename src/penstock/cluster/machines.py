"""The Ray cluster of a run: joining or starting it, its machines, and calls to the hosts on them."""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.cluster.door import Door
from penstock.cluster.host import Host
from penstock.cluster.messages import Facts, Publication
from penstock.cluster.own_code import runtime_env
from penstock.cluster.places import Offer, rooms
from penstock.errors import ConfigError, PenstockError
from penstock.program.graph import Program
from penstock.types import Array

__all__ = [
    "END_LIMIT_S",
    "Listed",
    "Machine",
    "alone",
    "answers",
    "as_object",
    "cluster_address",
    "counted",
    "doors",
    "end_all",
    "is_here",
    "joined",
    "line_of",
    "machine_error",
    "machines",
    "offers",
    "own_address",
    "own_door",
    "own_id",
    "own_name",
    "own_offer",
    "present",
    "put_again",
    "ray_names",
    "stacks_on",
    "with_cores",
]

FACTS_LIMIT_S = 120.0
END_LIMIT_S = 5.0
STACKS_LIMIT_S = 5.0
ANSWERS_LOOK_S = 0.5
CONNECT_S = 10.0
LOST_S = 10.0
REMOTE_OUTPUT = "PENSTOCK_REMOTE_OUTPUT"
"""Environment variable: the launcher shows what processes on other machines print, unless it is empty or 0."""


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


class Machine(Listed):
    """A machine of the cluster with a host of this run."""

    def __init__(self, node: dict[str, Any], program: Program) -> None:
        super().__init__(node)
        where = NodeAffinitySchedulingStrategy(self.id, soft=False)
        # 1. No cores are asked for: Ray would let the host wait where another program has reserved them.
        # 2. No events: Ray's head would keep an entry for each call of a host, 100,000 of them.
        options = {"num_cpus": 0, "enable_task_events": False, "scheduling_strategy": where}
        self._actor = ray.remote(Host).options(**options).remote(program, list(sys.path))

    def call(self, name: str, replied: Callable[[Any, BaseException | None], None], *arguments: Any) -> None:  # noqa: ANN401
        """Call a method of the host. ``replied`` is called with its result or its error, in another thread."""

        def done(future: Any) -> None:  # noqa: ANN401
            error = future.exception()
            replied(None if error is not None else future.result(), error)

        getattr(self._actor, name).remote(*arguments).future().add_done_callback(done)

    def facts(self) -> Facts:
        """Facts of the machine. Waits for its host to start.

        Raises:
            ConfigError: the host does not start.
        """
        return self.told(self._actor.facts.remote())

    def stacks(self, groups: Sequence[str]) -> ray.ObjectRef:
        """Ask for the stacks of processes there."""
        return self._actor.stacks.remote(groups)

    def ask(self, name: str, *arguments: Any) -> ray.ObjectRef:  # noqa: ANN401
        """Ask for the result of a method of the host. `answers` waits for several of them."""
        return getattr(self._actor, name).remote(*arguments)

    def closing(self) -> ray.ObjectRef:
        """Let the processes of the host end, each after it has closed its environments. Ready once all have ended."""
        return self._actor.end.remote()

    def end(self) -> None:
        """End the host with all its processes at once."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._actor)


def stacks_on(asked: Mapping[Machine, Mapping[str, str]]) -> dict[str, str]:
    """Group -> the stacks of its process. All machines are asked at once; a note for one that does not answer.

    Args:
        asked: machine -> the groups that it runs: name there -> name at home.
    """
    found = {group: f"{machine.name} does not answer" for machine, groups in asked.items() for group in groups.values()}
    with contextlib.suppress(ray.exceptions.RayError):
        if questions := {machine.stacks(list(groups)): groups for machine, groups in asked.items()}:
            ready, _ = ray.wait(list(questions), num_returns=len(questions), timeout=STACKS_LIMIT_S)
            for answer in ready:
                # Of a machine that was lost meanwhile.
                with contextlib.suppress(ray.exceptions.RayError):
                    found |= {questions[answer][there]: text for there, text in ray.get(answer).items()}
    return found


def answers(
    asked: Mapping[int, ray.ObjectRef], limit_s: float, over: Callable[[], bool] = lambda: False
) -> dict[int, Any]:
    """What was answered to each question. Questions that failed, or take longer than ``limit_s`` seconds, are left out.

    Args:
        asked: questions, which all are answered at the same time.
        limit_s: for all together.
        over: looked at twice a second. Once it is true, nothing more is waited for.
    """
    found: dict[int, Any] = {}
    left, until = list(asked.values()), time.monotonic() + limit_s
    with contextlib.suppress(ray.exceptions.RayError):
        while left and not over() and (rest := until - time.monotonic()) > 0:
            _, left = ray.wait(left, num_returns=len(left), timeout=min(ANSWERS_LOOK_S, rest))
        for number, answer in asked.items():
            if answer not in left:
                # Of a machine that was lost meanwhile.
                with contextlib.suppress(ray.exceptions.RayError):
                    found[number] = ray.get(answer)
    return found


def end_all(machines: Sequence[Machine]) -> None:
    """End these hosts together. Their processes have some seconds to close their environments."""
    with contextlib.suppress(ray.exceptions.RayError):
        if closing := [machine.closing() for machine in machines]:
            ray.wait(closing, num_returns=len(closing), timeout=END_LIMIT_S)
    for machine in machines:
        machine.end()


@contextlib.contextmanager
def joined(address: str | None, modules: Sequence[str] = ()) -> Iterator[None]:
    """Connect to a cluster within the ``with`` block, or start one on this machine. No effect if already connected.

    Args:
        address: of the cluster, as ``--address`` takes it.
        modules: top-level modules of the user. Those that are not installed are sent to the machines of the cluster.

    Raises:
        ConfigError: there is no cluster at this address, or the user's own code cannot be sent to its machines.
        PenstockError: Ray does not start here.
    """
    if ray.is_initialized():
        yield
        return
    _check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} if main else {}
    own = {} if address not in {None, "local"} else {"include_dashboard": False}
    try:
        with runtime_env(modules) as own_code:
            _init(address, **own, runtime_env=own_code)
    except ray.exceptions.RuntimeEnvSetupError as error:
        why = line_of(error).partition(". ")[0]
        raise ConfigError(
            f"modules of your own cannot be sent to other machines: {why}; name in a file .gitignore in your package "
            "what it does not need, or install it on every machine"
        ) from None
    except Exception as error:
        # Ray raises this very class, and none below it, if it takes longer than half a minute to start.
        if type(error) is not Exception:
            raise
        raise PenstockError(f"Ray does not start on this machine: {line_of(error)}") from None
    finally:
        # Ray puts its own handlers in place of the launcher's.
        for number, handler in handlers.items():
            signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def counted(address: str | None, modules: Sequence[str]) -> Iterator[int | None]:
    """As `joined`. Gives the cores of all machines of the cluster; ``None`` if this one is the only one."""
    with joined(address, modules):
        alive = [node for node in ray.nodes() if node["Alive"]]
        yield int(sum(_resources(node).get("cpu", 0.0) for node in alive)) if len(alive) > 1 else None


def _init(address: str | None, **settings: Any) -> None:  # noqa: ANN401 - as `ray.init`
    """Connect to a cluster, or start one.

    Raises:
        ConfigError: there is none at this address.
    """
    # Ray itself would always pass on what is printed, and mix it into the display.
    settings |= {"log_to_driver": os.environ.get(REMOTE_OUTPUT, "") not in {"", "0"}, "logging_level": logging.ERROR}
    try:
        ray.init(address=address, **settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if address is None:
            # A cluster was found on this machine, and settings of a new one do not fit it.
            settings.pop("include_dashboard", None)
            with contextlib.suppress(ConnectionError):
                ray.init(address="auto", **settings)
        if not ray.is_initialized():
            raise _no_cluster(address, f"{line_of(error)}{_without_token(address)}") from None


def _check_address(address: str | None) -> None:
    """Check that something listens at ``host:port``. Ray itself would try for two minutes.

    Raises:
        ConfigError: nothing does, or this is no address.
    """
    if address is None or address in {"auto", "local"}:
        return
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise ConfigError(f"--address {address}: write host:port, and begin the run on a machine of the cluster")
    if not host or not port.isdigit():
        raise ConfigError(f"--address {address}: write auto, local, or host:port of the cluster's head")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from None


def _no_cluster(address: str | None, why: str) -> ConfigError:
    if address is None:
        return ConfigError(
            f"a Ray cluster was started on this machine and does not answer: {why}; --address local starts another, "
            "or type ray stop to end what is left of it"
        )
    return ConfigError(
        f"no Ray cluster answers at --address {address}: {why}; `ray start --head` starts one, and with "
        "--address local this run starts its own"
    )


def _without_token(address: str | None) -> str:
    """What to type if the cluster asks for a token: given an address, Ray sends its token only if it is told to."""
    if address in {None, "auto", "local"} or "RAY_AUTH_MODE" in os.environ:
        return ""
    return " without a token (with one: --address auto, or set RAY_AUTH_MODE=token)"


def machines(program: Program, known: set[str]) -> list[Machine]:
    """Machines of the cluster that could run a part of the program and are not known yet. Starts a host on each."""
    return [Machine(node, program) for node in _others(program, known)]


def with_cores() -> list[dict[str, Any]]:
    """The launcher's machine and the others, by their ids, as Ray lists them; without those that have no core."""
    able = [node for node in ray.nodes() if node["Alive"] and _resources(node).get("cpu", 0.0) > 0]
    return sorted(able, key=lambda node: (node["NodeID"] != own_id(), str(node["NodeID"]))) or [_own()]


def present() -> set[str]:
    """The ids of the machines that Ray takes for alive."""
    return {str(node["NodeID"]) for node in ray.nodes() if node["Alive"]}


def doors() -> dict[str, Door]:
    """The name of each machine that Ray takes for alive -> where Ray listens on it."""
    return {_name(node): Door.of(node) for node in ray.nodes() if node["Alive"]}


def alone(program: Program) -> bool:
    """Whether the launcher's machine is the only one of the cluster that could run anything."""
    return not _others(program, set())


def offers(program: Program) -> list[Offer]:
    """The launcher's machine, and the others that could run a part of the program."""
    return [own_offer(), *(Offer(_name(node), _resources(node)) for node in _others(program, set()))]


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


_RAY_NAMES = {"cpu": "CPU", "gpu": "GPU"}


def _own() -> dict[str, Any]:
    here: dict[str, Any] = next(node for node in ray.nodes() if node["NodeID"] == own_id())
    return here


def _others(program: Program, known: set[str]) -> list[dict[str, Any]]:
    """Other machines with a core, or with what a node asks for, by their ids."""

    def able(resources: Mapping[str, float]) -> bool:
        return resources.get("cpu", 0.0) > 0 or any(rooms(resources, asked) >= 1 for asked in program.demands.values())

    apart = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in {*known, own_id()}]
    return sorted((node for node in apart if able(_resources(node))), key=lambda node: str(node["NodeID"]))


def _name(node: Mapping[str, Any]) -> str:
    return f"machine {node['NodeManagerAddress']} ({node['NodeID'][:8]})"


def _resources(node: Mapping[str, Any]) -> dict[str, float]:
    names = {theirs: ours for ours, theirs in _RAY_NAMES.items()}
    return {names.get(name, name): float(amount) for name, amount in node["Resources"].items()}


def as_object(content: Publication | dict[int, Array]) -> Any:  # noqa: ANN401 - Ray's own type
    """A publication, or the rollouts of a batch by their slots, as an object of Ray."""
    return ray.put(content)


def put_again(held: Any) -> Any:  # noqa: ANN401 - Ray's own type
    """The content of an object of this machine as another one, which no other machine has a copy of."""
    return ray.put(ray.get(held))


def machine_error(error: BaseException) -> tuple[str, bool]:
    """A line on why a call failed. True if the host's own code is at fault, false if the machine is lost."""
    return line_of(error), isinstance(error, RayTaskError) and not isinstance(error, RayActorError)


def line_of(error: BaseException) -> str:
    """The last line of what an error of Ray says."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
