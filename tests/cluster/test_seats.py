"""Each machine that is to run environment nodes has policy nodes: when the run begins, and after machines join or go.

Machines are none here, and no process starts.
"""

import signal
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock.cluster.cut import RELAY, with_relay
from penstock.cluster.places import Offer
from penstock.cluster.seats import Seats
from penstock.cluster.spread_processes import SpreadProcesses
from penstock.errors import PenstockError
from penstock.processes.worker import WorkerSpec
from penstock.supervision.lives import Exit
from penstock.types import Cause
from penstock.wiring.edges import placement
from tests.cluster.handing import asking_program

GROUPS = (("policy.0",), ("policy.0.1",), ("policy.0.2",))


def test_home_has_a_seat_of_its_own_and_hosts_take_the_others_in_turn() -> None:
    seats = Seats("home", GROUPS)
    used = {"home", "a", "b"}
    assert seats.take("a", used) == ("policy.0.1",)
    assert not seats.taken("policy.0")
    assert seats.take("home", used) == ("policy.0",)
    assert seats.take("b", used) == ("policy.0.2",)
    assert [seats.place(group) for (group,) in GROUPS] == ["home", "a", "b"]
    # It has one.
    assert seats.take("a", used) == ()


def test_a_host_without_environments_gives_its_seat_up_once_none_is_empty() -> None:
    seats = Seats("home", GROUPS)
    for place in ("home", "a", "b"):
        seats.take(place, {"home", "a", "b"})
    # The seat of home stays that of home.
    assert seats.take("c", {"b", "c"}) == ("policy.0.1",)
    assert seats.place("policy.0.1") == "c"
    assert seats.take("a", {"a", "c"}) == ("policy.0.2",)


def test_without_policy_nodes_nothing_is_to_start() -> None:
    seats = Seats("home", ())
    assert seats.take("a", {"a"}) == ()
    assert "env.0" not in seats


class Machine:
    """Another machine with so many cores and GPUs."""

    def __init__(self, name: str, cores: int, gpus: int = 0) -> None:
        self.name = name
        self.offer = Offer(name, {"cpu": cores, "gpu": gpus})


class Relay:
    """Says where groups run, and which machines were given up."""

    def __init__(self) -> None:
        self.on: dict[str, Machine] = {}
        self.gone: set[Machine] = set()
        self.ended: list[Exit] = []
        self.killed: list[str] = []

    def begin(self, life: int, former: tuple[int, ...]) -> None: ...

    def start(self, machine: Machine, spec: WorkerSpec, threads: int, imports: Sequence[str]) -> None:
        self.on[spec.placement.group] = machine

    def machine_of(self, group: str) -> Machine | None:
        return self.on.get(group)

    def running(self) -> tuple[str, ...]:
        return tuple(self.on)

    def exits(self) -> list[Exit]:
        found, self.ended = self.ended, []
        return found

    def kill(self, group: str) -> None:
        self.killed.append(group)
        self.on.pop(group, None)

    def lost(self) -> set[Machine]:
        return self.gone

    def lose(self, machine: Machine) -> None:
        self.gone = {*self.gone, machine}
        lost = [group for group, where in self.on.items() if where is machine]
        self.ended += [Exit(group, -signal.SIGKILL, "", Cause.LOST) for group in lost]
        for group in lost:
            del self.on[group]


class Here:
    """Processes of home."""

    def __init__(self) -> None:
        self.alive: list[str] = []

    def start(self, segment: object, spec: WorkerSpec, threads: int, imports: Sequence[str]) -> None:
        assert spec.placement.group not in self.alive
        self.alive.append(spec.placement.group)

    def running(self) -> list[str]:
        return list(self.alive)

    def exits(self) -> list[Exit]:
        return []

    def kill(self, group: str) -> None:
        self.alive.remove(group)


class Cluster:
    """Home with so many cores, and other machines. Those in ``joining`` take part from the next look on."""

    def __init__(self, cores: int, *machines: Machine) -> None:
        self.home = Offer("home", {"cpu": cores})
        self.machines = list(machines)
        self.joining: list[Machine] = []

    def joined(self, lost: set[Machine]) -> tuple[list[Machine], list[str]]:
        found, self.joining = self.joining, []
        self.machines += found
        return found, []


class Claims:
    """Notes what Ray keeps for each group, on which machine; and for which groups it is asked for any machine."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Machine | None, Mapping[str, float]]] = {}
        self.asked: set[str] = set()

    def take(self, group: str, machine: Machine | None, asked: Mapping[str, float]) -> None:
        self.release(group)
        if asked:
            self.kept[group] = machine, asked

    def ask(self, group: str, asked: Mapping[str, float]) -> None:
        assert asked
        self.release(group)
        self.asked.add(group)

    def release(self, group: str) -> None:
        self.kept.pop(group, None)
        self.asked.discard(group)

    def wait(self, asked: Mapping[str, Mapping[str, float]]) -> None:
        assert {group: amounts for group, (_, amounts) in self.kept.items()}.items() <= asked.items()

    def where(self) -> dict[str, Machine | None]:
        """Group -> the machine on which Ray keeps something for it."""
        return {group: machine for group, (machine, _) in self.kept.items()}


class Run:
    """A run whose environment nodes ask policy nodes."""

    def __init__(self, cluster: Cluster, workers: int, policy_nodes: int = 1, resources: str | None = None) -> None:
        self.program = with_relay(asking_program(workers, policy_nodes, resources))
        self.relay, self.here, self.cluster, self.claims = Relay(), Here(), cluster, Claims()
        doubles: tuple[Any, ...] = (self.here, self.relay, cluster, self.claims)
        self.spread = SpreadProcesses(self.program, *doubles)
        for group in self.program.groups:
            self.start(group)

    def start(self, group: str) -> None:
        part = placement(self.program, group)
        lives = {node.name: 1 for node in part.nodes}
        segment: Any = None
        self.spread.start(segment, WorkerSpec(part, lives, dict.fromkeys(lives, ())), 1)

    def tick(self) -> list[tuple[str, Cause]]:
        """What the supervisor hears of. It starts each of these groups again."""
        ended = self.spread.exits()
        for one in ended:
            assert one.group not in self.spread.running()
            self.start(one.group)
        return [(one.group, one.cause) for one in ended]

    def at_home(self) -> set[str]:
        return {group for group in self.here.alive if group.startswith(("env", "policy"))}


def test_each_machine_with_environments_runs_policy_nodes_from_the_beginning() -> None:
    a, b, idle = Machine("a", 2), Machine("b", 2), Machine("c", 0)
    run = Run(Cluster(2, a, b, idle), workers=3, policy_nodes=2)
    assert run.at_home() == {"env.0", "policy.0", "policy.1"}
    assert run.relay.on == {
        "env.1": a,
        "policy.0.1": a,
        "policy.1.1": a,
        "env.2": b,
        "policy.0.2": b,
        "policy.1.2": b,
    }
    assert run.tick() == []


def test_home_without_environments_runs_no_policy_node_until_it_has_to_run_them() -> None:
    a = Machine("a", 2)
    run = Run(Cluster(0, a), workers=2)
    assert run.at_home() == set()
    assert set(run.relay.on) == {"env.0", "env.1", "policy.0.1"}
    run.relay.lose(a)
    # The policy node of the lost machine is needed nowhere.
    assert run.tick() == [("env.0", Cause.LOST), ("env.1", Cause.LOST)]
    assert run.tick() == [("policy.0", Cause.NEEDED)]
    assert run.at_home() == {"env.0", "env.1", "policy.0"}
    assert run.tick() == []


def test_environments_of_a_lost_machine_ask_the_policy_nodes_of_another() -> None:
    a, b = Machine("a", 2), Machine("b", 2)
    run = Run(Cluster(0, a, b), workers=2)
    run.relay.lose(a)
    assert run.tick() == [("env.0", Cause.LOST)]
    assert run.relay.on == {"env.0": b, "env.1": b, "policy.0.2": b}
    assert run.tick() == []


def test_a_policy_node_that_dies_begins_again_on_its_machine() -> None:
    a = Machine("a", 2)
    run = Run(Cluster(2, a), workers=2)
    del run.relay.on["policy.0.1"]
    run.relay.ended.append(Exit("policy.0.1", -signal.SIGKILL, ""))
    assert run.tick() == [("policy.0.1", Cause.NONE)]
    assert run.relay.on["policy.0.1"] is a


@pytest.mark.parametrize("dies", [False, True], ids=["alive", "dies at that moment"])
def test_a_machine_that_joins_gets_policy_nodes_with_its_first_environment(dies: bool) -> None:
    a, b = Machine("a", 2), Machine("b", 8)
    cluster = Cluster(0, a)
    run = Run(cluster, workers=1)
    assert run.relay.on == {"env.0": a, "policy.0.1": a}
    cluster.joining.append(b)
    assert run.tick() == [("env.0", Cause.MOVED)]
    # There is one seat for hosts, because there is one environment node.
    if dies:
        del run.relay.on["policy.0.1"]
        run.start("policy.0.1")
        assert run.tick() == []
        assert run.relay.killed == ["env.0"]
    else:
        assert run.tick() == [("policy.0.1", Cause.NEEDED)]
        assert run.relay.killed == ["env.0", "policy.0.1"]
    assert run.relay.on == {"env.0": b, "policy.0.1": b}
    assert run.tick() == []


def test_the_relay_itself_has_no_seat() -> None:
    run = Run(Cluster(2), workers=1)
    assert RELAY not in run.here.alive
    assert run.at_home() == {"env.0", "policy.0"}


def test_ray_keeps_what_policy_nodes_ask_for_on_each_machine_that_runs_them() -> None:
    a, b, c = Machine("a", 3), Machine("b", 2), Machine("c", 4)
    cluster = Cluster(2, a, b)
    run = Run(cluster, workers=3, resources="env: {cpu: 1}, policy: {cpu: 0.5}", policy_nodes=2)
    at_home = {"env.0": None, "policy.0": None, "policy.1": None}
    on_b = {"env.2": b, "policy.0.2": b, "policy.1.2": b}
    assert run.claims.where() == {**at_home, "env.1": a, "policy.0.1": a, "policy.1.1": a, **on_b}
    assert run.claims.kept["policy.1.2"] == (b, {"cpu": 0.5})
    assert not run.claims.asked
    run.relay.lose(a)
    # No other has room, so it shares that of b. Nothing is kept for the policy nodes of the lost machine.
    assert run.tick() == [("env.1", Cause.LOST)]
    assert run.relay.on["env.1"] is b
    assert run.claims.where() == {**at_home, **on_b}
    assert run.claims.asked == {"env.1"}
    # It has room for three beside its policy nodes, and home and b for one each.
    cluster.joining.append(c)
    assert set(run.tick()) == {("env.1", Cause.MOVED), ("env.2", Cause.MOVED)}
    assert run.tick() == [("policy.0.3", Cause.NEEDED), ("policy.1.3", Cause.NEEDED)]
    on_c = dict.fromkeys(("env.1", "env.2", "policy.0.3", "policy.1.3"), c)
    # Those of b run on, and are there for its next environment.
    assert run.claims.where() == {**at_home, "policy.0.2": b, "policy.1.2": b, **on_c}
    assert not run.claims.asked
    assert run.tick() == []


def test_a_seat_that_moves_takes_along_what_is_kept_for_it() -> None:
    a, b = Machine("a", 2, gpus=1), Machine("b", 8, gpus=1)
    cluster = Cluster(0, a)
    run = Run(cluster, workers=1, resources="policy: {gpu: 1}")
    assert run.claims.where() == {"policy.0.1": a}
    cluster.joining.append(b)
    assert run.tick() == [("env.0", Cause.MOVED)]
    assert run.claims.where() == {"policy.0.1": b}


def test_nothing_is_kept_any_more_on_the_machine_that_a_seat_has_left() -> None:
    """Also where the new machine of the seat has no room left for what its policy node asks for."""
    a, b = Machine("a", 2, gpus=1), Machine("b", 8, gpus=1)
    cluster = Cluster(0, a)
    cluster.home = Offer("home", {"cpu": 0, "gpu": 1})
    run = Run(cluster, workers=1, resources="learner: {gpu: 1}, policy: {gpu: 1}")
    assert run.claims.where() == {"learner": None, "policy.0.1": a}
    cluster.machines.append(b)
    # A learner takes the GPU of b, and then the environment moves there.
    run.spread._wanted |= {"learner": b, "env.0": b}
    run.spread._claim(["learner"])
    run.start("env.0")
    assert run.tick() == [("policy.0.1", Cause.NEEDED)]
    assert run.relay.on == {"env.0": b, "policy.0.1": b}
    assert run.claims.where() == {"learner": b}


def test_environments_of_a_lost_machine_go_only_where_policy_nodes_have_room() -> None:
    a, b, plain = Machine("a", 4, gpus=1), Machine("b", 1, gpus=1), Machine("c", 4)
    run = Run(Cluster(2, a, b, plain), workers=2, resources="policy: {gpu: 1}")
    assert run.relay.on == {"env.0": a, "policy.0.1": a, "env.1": a}
    run.relay.lose(a)
    assert set(run.tick()) == {("env.0", Cause.LOST), ("env.1", Cause.LOST)}
    assert run.relay.on["env.0"] is run.relay.on["env.1"] is b
    assert run.claims.where() == {"policy.0.2": b}
    run.relay.lose(b)
    with pytest.raises(PenstockError, match=r"^b was lost, and no other has {gpu: 1}, which env\.0 and policy nodes"):
        run.tick()
