"""Nodes run where there is room for what they ask for; without demands, by cores and in turn."""

from pathlib import Path

import pytest

from penstock.cluster import spread
from penstock.cluster.apart import apart
from penstock.cluster.places import FewMachinesError, Gpus, Offer, env_shares, first_places, free_of, rooms
from penstock.errors import ConfigError
from penstock.planning import plan
from penstock.program.graph import Program
from penstock.topologies import async_on_policy, on_policy
from tests.cluster.handing import sharded_program
from tests.planned import prepared

HOME = Offer("the launcher's machine", {"cpu": 2, "big": 1, "mbit": 120, "node:10.0.0.1": 1, "memory": 1e9})
BIG, SMALL = Offer("machine b", {"cpu": 2, "big": 1}), Offer("machine c", {"cpu": 4, "mbit": 60})


def test_learners_of_one_machine_take_its_gpus_in_turn() -> None:
    gpus, home, far = Gpus(), None, object()
    assert [gpus.of("learner", home), gpus.of("learner.1", far), gpus.of("learner.2", far)] == [0, 0, 1]
    # A restart keeps the GPU.
    assert gpus.of("learner.1", far) == 0
    # One that moves takes the first that is free there, and leaves its own to others.
    assert gpus.of("learner.1", home) == 1
    assert gpus.of("learner.3", far) == 0


def program(resources: str | None, learners: int = 2, **settings: object) -> Program:
    settings |= {"num_workers": 4, "num_envs": 4, "learners": learners, "runtime": "ray", "resources": resources}
    return on_policy.build(plan(prepared(**settings), Path("run"), quiet=True))


@pytest.mark.parametrize(
    ("resources", "learners", "envs"),
    [
        # Cores 2, 4 and 2 of 8.
        (None, [0, 1], [0, 1, 1, 2]),
        ("learner: {big: 1}", [0, 2], [0, 1, 1, 2]),
        ("env: {big: 0.25}", [0, 1], [0, 0, 2, 2]),
        # Learners come first, and leave one core on each of two machines.
        ("env: {cpu: 1}, learner: {cpu: 1}", [0, 1], [0, 1, 1, 2]),
        ("env: {cpu: 1}, learner: {cpu: 2}", [0, 1], [1, 1, 2, 2]),
        # Bandwidth, as a resource of the user's own: room for three at home, for one on the second machine.
        ("env: {mbit: 40}", [0, 1], [0, 0, 0, 1]),
    ],
)
def test_nodes_go_where_they_have_room(resources: str | None, learners: list[int], envs: list[int]) -> None:
    places = first_places(apart(program(resources), "10.0.0.1"), [HOME, SMALL, BIG])
    assert [places[f"learner{number}"] for number in ("", ".1")] == learners
    assert [places[f"env.{number}"] for number in range(4)] == envs


GPU, HUGE = Offer("machine d", {"cpu": 2, "gpu": 1}), Offer("machine e", {"cpu": 4, "memory": 3e9})


@pytest.mark.parametrize(
    ("resources", "policy_nodes", "offers", "envs"),
    [
        # By cores, on machines with room for a policy node.
        ("policy: {gpu: 1}", 1, [HOME, SMALL, GPU, GPU], [2, 2, 3, 3]),
        ("policy: {memory: 1e9}", 2, [HOME, SMALL, HUGE], [2, 2, 2, 2]),
        # Of 2, 4 and 4 cores the policy nodes of each machine take 1, and 2.
        ("env: {cpu: 1}, policy: {cpu: 1}", 1, [HOME, SMALL], [0, 1, 1, 1]),
        ("env: {cpu: 1}, policy: {cpu: 1}", 2, [HOME, SMALL, HUGE], [1, 1, 2, 2]),
        # The learner has one of the two cores of its machine.
        ("learner: {cpu: 1}, policy: {cpu: 2}", 1, [HOME, SMALL], [1, 1, 1, 1]),
    ],
)
def test_environments_go_where_policy_nodes_have_room_beside_them(
    resources: str, policy_nodes: int, offers: list[Offer], envs: list[int]
) -> None:
    asking = program(resources, learners=1, policy_placement="node", policy_nodes=policy_nodes)
    places = first_places(asking, offers)
    assert [places[f"env.{number}"] for number in range(4)] == envs


@pytest.mark.parametrize(
    ("gpus", "held", "asked", "count"),
    [
        # Two nodes leave 0.2 of each GPU. Together that is no room for a fifth one.
        (2, [], 0.4, 4),
        (3, [], 0.6, 3),
        (2, [], 0.5, 4),
        (2, [], 0.1, 20),
        # 0.4 is left of one GPU, and the whole other one.
        (2, [0.6], 0.6, 1),
        (2, [0.6], 0.4, 3),
        # Ten tenths are a whole, although they are rounded.
        (1, [0.3, 0.3, 0.3], 0.1, 1),
        # The second part goes to the GPU of the first one, so the other GPU is whole.
        (2, [0.5, 0.3], 1.0, 1),
        # 0.2 goes where 0.2 is left, and not where 0.7 is left.
        (2, [0.3, 0.8, 0.2], 0.7, 1),
        # Three whole GPUs are left: one node takes two of them.
        (4, [0.1], 2.0, 1),
        (2, [1.0, 0.5], 0.5, 1),
        # The second learner found no room, so it holds nothing.
        (1, [0.6, 0.6], 0.4, 1),
        (1, [], 2.0, 0),
        (0, [], 0.5, 0),
    ],
)
def test_a_part_of_a_gpu_comes_from_one_gpu(gpus: int, held: list[float], asked: float, count: int) -> None:
    free = free_of({"cpu": 2, "gpu": gpus}, [{"gpu": part} for part in held])
    assert rooms(free, {"gpu": asked}) == rooms(free, {"gpu": asked, "cpu": 0.1}) == count


@pytest.mark.parametrize(
    ("resources", "policy_nodes", "gpus", "says"),
    [
        # 1.8 and 2.4 of the GPUs, but no two of these nodes fit on one.
        ("policy: {gpu: 0.6}", 3, 2, "no machine with a core has room for the 3 policy nodes that it needs"),
        ("env: {gpu: 0.6}", 1, 3, "4 processes ask for it, and 3 have room"),
        # Each policy node leaves 0.3 of a GPU, which is room for one process.
        ("env: {gpu: 0.2}, policy: {gpu: 0.7}", 2, 2, "4 processes ask for it, and 2 have room"),
    ],
)
def test_nodes_that_no_two_gpus_could_share_are_refused(
    resources: str, policy_nodes: int, gpus: int, says: str
) -> None:
    asking = program(resources, learners=1, policy_placement="node", policy_nodes=policy_nodes)
    with pytest.raises(FewMachinesError, match=says):
        first_places(asking, [HOME, Offer("machine f", {"cpu": 4, "gpu": gpus})])


def test_policy_nodes_of_games_stay_at_home_and_are_not_counted() -> None:
    """Games connect to the launcher, so their lanes run on no other machine."""
    games = {"env": "gamecore://tests.games.agents:Cart", "algo": "impala", "num_envs": 2, "runtime": "ray"}
    asking = prepared(**games, policy_placement="node", resources="policy: {cpu: 1}")
    built = async_on_policy.build(plan(asking, Path("run"), quiet=True))
    assert first_places(built, [HOME, SMALL]) == {"learner": 0}


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        (
            "env: {cpu: 1}, policy: {cpu: 0.5}",
            r"env: {cpu: 1}: 4 processes ask for it, and 3 have room beside what policy nodes ask for on each machine",
        ),
        (
            "policy: {gpu: 1}",
            r"policy: {gpu: 1}: no machine with a core has room for the 2 policy nodes that it needs; the cluster has ",
        ),
    ],
)
def test_policy_nodes_without_room_are_named(resources: str, says: str) -> None:
    asking = program(resources, learners=1, policy_placement="node", policy_nodes=2)
    with pytest.raises(FewMachinesError, match=f"^--resources {says}"):
        # Room for 1 and for 2 processes; and for one policy node of two.
        first_places(asking, [HOME, Offer("machine f", {"cpu": 3, "gpu": 1})])


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        (
            "learner: {gpu: 1}",
            r"the first learner runs on the launcher's machine, which has too little of that: [^;]*; the clus[^;]*$",
        ),
        ("learner: {big: 1}", "no room for learner.1: add a machine first, or give --min_workers to wait for one; "),
        # No machine has a GPU.
        ("env: {GPUs: 1}", r"4 processes ask for it, and 0 have room; .*; did you mean gpu\?$"),
        ("env: {gpu: 1}", r"4 processes ask for it, and 0 have room; [^;]*$"),
        ("env: {cpus: 1}", r"4 processes ask for it, and 0 have room; .*; did you mean cpu\?$"),
        (
            "env: {cpu: 3}",
            "4 processes ask for it, and 1 have room; .* {big: 1, cpu: 2, mbit: 120}, machine c {cpu: 4, mbit: 60}$",
        ),
    ],
)
def test_what_no_machine_can_fulfil_is_named_with_what_there_is(resources: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^--resources .*{says}") as refusal:
        first_places(apart(program(resources), "10.0.0.1"), [HOME, SMALL])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("cores", "envs"), [(1, [0, 1, 1, 1]), (2, [0, 0, 1, 1]), (6, [0, 0, 0, 1])])
def test_with_a_minimum_the_others_share_the_room_that_is_there(cores: int, envs: list[int]) -> None:
    asking = program("env: {cpu: 1}", learners=1, min_workers=2)
    places = first_places(asking, [Offer("home", {"cpu": cores}), Offer("machine b", {"cpu": 2})])
    assert [places[f"env.{number}"] for number in range(4)] == envs


def test_fewer_than_the_minimum_are_refused() -> None:
    asking = program("env: {cpu: 1}", learners=1, min_workers=3)
    with pytest.raises(FewMachinesError, match=r"3 of 4 processes need room \(--min_workers\), and 2 have room"):
        first_places(asking, [Offer("home", {"cpu": 1}), Offer("machine b", {"cpu": 1})])


def test_on_one_machine_all_learners_ask_it() -> None:
    says = "2 learners run on the launcher's machine, .* once other machines have joined"
    with pytest.raises(ConfigError, match=says) as refusal:
        first_places(program("learner: {big: 1}"), [HOME])
    # No machine that comes later changes that.
    assert not isinstance(refusal.value, FewMachinesError)


def test_a_learner_that_may_run_elsewhere_may_wait_for_machines() -> None:
    asking = apart(program("env: {cpu: 1}, learner: {big: 1}", min_workers=1), "10.0.0.1")
    with pytest.raises(FewMachinesError, match=r"there is no room for learner\.1; the cluster has"):
        first_places(asking, [HOME, SMALL])
    assert first_places(asking, [HOME, SMALL, BIG])["learner.1"] == 2
    # The first learner stays at home.
    with pytest.raises(ConfigError, match="the first learner runs on the launcher's machine") as refusal:
        first_places(asking, [SMALL, BIG, BIG])
    assert not isinstance(refusal.value, FewMachinesError)


def test_a_learner_of_a_table_without_room_elsewhere_is_refused_with_the_reason() -> None:
    home, other = Offer("home", {"cpu": 2, "gpu": 2}), Offer("machine b", {"cpu": 4})
    asking = sharded_program(resources="learner: {gpu: 1}")
    with pytest.raises(FewMachinesError, match=r"no room for learner\.1 on another machine than the launcher's: add a"):
        first_places(asking, [home, other])
    assert first_places(asking, [home])["learner.1"] == 0


def test_a_machine_that_joins_gets_as_many_as_have_room() -> None:
    asking = program("env: {cpu: 1}", learners=1)
    assert env_shares(asking, [free_of(has) for has in ({"cpu": 4.0}, {"cpu": 4.0}, {"gpu": 1.0})]) == [2, 2, 0]


def test_a_run_says_on_which_cluster_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "cluster_address", lambda: "10.0.0.1:6379")
    monkeypatch.setattr(spread, "own_address", lambda: "127.0.0.1")
    for found, says in (([HOME], "1 machine with 2 cores"), ([HOME, SMALL, BIG], "3 machines with 8 cores")):
        monkeypatch.setattr(spread, "offers", lambda _, found=found: found)
        told = spread._told(program(None)).node("monitor").settings.first_lines
        assert told[-1] == f"Ray cluster at 10.0.0.1:6379: {says}"
    monkeypatch.setattr(spread, "offers", lambda _: [HOME])
    told = spread._told(program("env: {cpu: 1}", learners=1, min_workers=2)).node("monitor").settings.first_lines
    assert told[-1].endswith("2 cores; 2 of 4 environment processes have room, and the others share it")
    # Of the two cores of each machine, its learner holds one.
    monkeypatch.setattr(spread, "offers", lambda _: [HOME, BIG])
    holding = apart(program("env: {cpu: 1}, learner: {cpu: 1}", min_workers=2), "127.0.0.1")
    told = spread._told(holding).node("monitor").settings.first_lines
    assert told[-1].endswith("4 cores; 2 of 4 environment processes have room, and the others share it")
    # Machines that share a folder /tmp/ray: Ray gives each the address of the one that has begun last.
    monkeypatch.setattr(spread, "own_address", lambda: "192.0.2.77")
    told = spread._told(program(None)).node("monitor").settings.first_lines
    assert "; Ray takes this machine for 192.0.2.77, which is none of its addresses" in told[-1]
