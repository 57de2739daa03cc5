"""Programs that learn from a table: the table's size, the edges between learners, and how far they may run apart."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.metrics.return_range import ReturnRange
from penstock.planning import plan
from penstock.processes.machine import shared_memory, table_memory
from penstock.program.check import check
from penstock.program.draw import draw
from penstock.program.graph import Board, Program, Rounds, Stream, Table
from penstock.topologies import async_off_policy, off_policy
from tests.planned import prepared


def program(pattern, **settings: object) -> Program:
    found = prepared(**{"env": "Pendulum-v1", "algo": "sac", "num_workers": 2, "num_envs": 4, **settings})
    return check(pattern.build(plan(found, Path("run"), quiet=True)))


def rollouts(of: Program) -> Table:
    edge = of.edge("rollouts")
    assert isinstance(edge, Table)
    return edge


@pytest.mark.parametrize("algo", ["sac", "td3"])
@pytest.mark.parametrize("table_bytes", [1_000_000, 1_234_567])
@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_a_table_takes_as_many_bytes_as_it_may(algo: str, table_bytes: int, num_workers: int) -> None:
    held = rollouts(program(off_policy, algo=algo, num_workers=num_workers, table_bytes=table_bytes))
    assert held.rings.nbytes <= table_bytes < replace(held, slots=held.slots + 1).rings.nbytes


def test_priorities_count_as_bytes_of_their_table() -> None:
    cartpole = {"env": "CartPole-v1", "algo": "dqn", "table_bytes": 1_000_000}
    ranked, alike = (rollouts(program(off_policy, prioritised=which, **cartpole)) for which in (True, False))
    assert ranked.rings.nbytes <= 1_000_000 < replace(ranked, slots=ranked.slots + 1).rings.nbytes
    assert ranked.slots < alike.slots


def test_a_table_keeps_its_capacity_where_bytes_are_plenty() -> None:
    held = rollouts(program(off_policy, capacity=5_000, table_bytes=10**9))
    assert held.slots == rollouts(program(off_policy, capacity=5_000)).slots


def test_the_monitor_knows_the_range_of_returns_that_are_learned_as_they_are() -> None:
    def known(**settings: object) -> ReturnRange | None:
        return program(off_policy, env="CartPole-v1", algo="dqn", **settings).node("monitor").settings.return_range

    atoms = {"atoms": 51, "value_min": -10.0, "value_max": 20.0}
    assert known(**atoms) == (-10.0, 20.0, 0.99)
    assert known() is known(**atoms, clip_reward=True) is None


def test_bytes_that_do_not_hold_what_collecting_may_be_ahead_are_refused() -> None:
    little = {"min_rows": 64, "mini_batch_size": 64, "num_steps": 8, "table_bytes": 80_000}
    assert rollouts(program(off_policy, **little)).rings.nbytes <= 80_000
    with pytest.raises(ConfigError, match=r"--table_bytes 80000 is too little: .* may be 4 rollouts ahead, .* takes"):
        program(async_off_policy, sync_mode="non_blocking", **little)


def shares(of: Program, *names: str) -> list[tuple[int, int]]:
    """Which learner each node is, and the rows of its minibatches."""
    settings = [of.node(name).settings for name in names]
    # A follower has the settings of its gradient steps alone.
    updaters = [getattr(part, "steps", part).updater for part in settings]
    return [(updater.learner, updater.spec.schedule.mini_batch_size) for updater in updaters]


def test_learners_in_lock_step_share_each_minibatch_and_meet_in_rounds() -> None:
    together = program(off_policy, learners=2, mini_batch_size=64)
    assert together.node("learner").kind == "replay_learner"
    assert together.node("learner.1").kind == "replica"
    assert shares(together, "learner", "learner.1") == [(0, 32), (1, 32)]
    rounds = together.edge("gradients")
    assert isinstance(rounds, Rounds)
    assert rounds.members == ("learner", "learner.1")
    assert "rounds gradients" in draw(together)
    # Each samples from its own half of the table, which takes as many rows ahead as the other.
    alone, table = rollouts(program(off_policy, mini_batch_size=64)), rollouts(together)
    assert (alone.shards, table.shards) == (1, 2)
    assert table.limiter.tolerance == alone.limiter.tolerance // 2
    with pytest.raises(ConfigError, match="--num_workers 2 cannot be split evenly over --learners 4"):
        program(off_policy, learners=4, mini_batch_size=64)


def test_learners_that_overlap_hand_their_gradients_to_who_owns_the_parameters() -> None:
    apart = program(async_off_policy, sync_mode="non_blocking", learners=3, mini_batch_size=64, max_policy_lag=7)
    names = ("learner.1", "learner.2", "learner.3")
    assert apart.node("learner").kind == "parameter"
    assert apart.node("learner").settings.max_gradient_lag == 7
    assert [apart.node(name).kind for name in names] == ["follower"] * 3
    assert shares(apart, *names) == [(0, 64), (1, 64), (2, 64)]
    gradients, parameters, table = apart.edge("gradients"), apart.edge("parameters"), apart.edge("rollouts")
    assert isinstance(gradients, Stream)
    assert (gradients.writers, gradients.readers, gradients.slots) == (names, ("learner",), 6)
    assert isinstance(parameters, Board)
    assert (parameters.writer, parameters.readers) == ("learner", names)
    assert isinstance(table, Table)
    assert table.readers == ("learner", *names)


@pytest.mark.parametrize("learners", [1, 2])
def test_a_writer_that_is_faster_than_all_others_overwrites_nothing_that_was_not_taken_note_of(learners: int) -> None:
    wide = {"num_envs": 16, "num_steps": 4, "num_workers": 8, "min_rows": 128, "capacity": 128, "mini_batch_size": 64}
    table = program(async_off_policy, sync_mode="non_blocking", learners=learners, **wide).edge("rollouts")
    assert isinstance(table, Table)
    assert table.limiter is not None
    rows_of_slot = 16 * 4 // 8
    # The limiter lets a node begin another slot until it is this many rows ahead. One more slot is being filled then.
    inserted = slots = 0
    while table.limiter.may_insert(inserted, 0):
        inserted += rows_of_slot
        slots += 1
    assert table.slots >= slots + 1


@pytest.mark.parametrize("learners", [2, 4])
def test_a_writer_that_catches_up_with_other_shards_overwrites_nothing_either(learners: int) -> None:
    wide = {"num_envs": 16, "num_steps": 4, "num_workers": 8, "min_rows": 128, "capacity": 128, "mini_batch_size": 64}
    together = {"learners": learners, "exchange": "allreduce", "sync_mode": "non_blocking"}
    table = program(async_off_policy, **together, **wide).edge("rollouts")
    assert isinstance(table, Table)
    assert table.limiter is not None
    # 1. All shards but the last collect as far as they may, and all of that is learned from.
    rows_of_slot, inserted, paid = 16 * 4 // 8, 0, 0
    while table.limiter.may_insert(inserted, paid):
        inserted += rows_of_slot
        paid = inserted * (learners - 1) // learners
    # 2. One writer of the last shard is faster than the learner.
    late = slots = 0
    while table.limiter.may_insert(late, paid):
        late += rows_of_slot
        slots += 1
    assert table.slots >= slots + 1


@pytest.mark.parametrize("pattern", [off_policy, async_off_policy])
def test_one_learner_is_joined_to_no_other(pattern) -> None:
    names = {edge.name for edge in program(pattern).edges}
    assert not names & {"gradients", "goals", "parameters"}


@pytest.mark.parametrize("backend", ["compiled", "eager"])
def test_learners_name_what_takes_long_to_import_and_who_steps_environments_does_not(backend: str) -> None:
    module = (f"penstock.updates.{backend}",)
    apart = program(async_off_policy, sync_mode="non_blocking", learners=2, backend=backend)
    named = {node.name: node.imports for node in apart.nodes if node.imports}
    assert named == {"learner": module, "learner.1": module, "learner.2": module}
    together = program(off_policy, learners=2, backend=backend)
    assert {node.name for node in together.nodes if node.imports == module} == {"learner", "learner.1"}
    acting = program(off_policy, backend=backend, inference="torch").node("env.0")
    assert acting.imports == ("penstock.inference.torch",)


def test_nothing_is_imported_beforehand_for_a_gpu(monkeypatch) -> None:
    monkeypatch.setattr("penstock.updates.devices.check", lambda device: None)
    on_gpu = program(off_policy, backend="compiled", device="cuda")
    assert not any(node.imports for node in on_gpu.nodes)


def test_a_table_whose_shards_lie_with_their_learners_is_in_no_file_and_in_no_checkpoint() -> None:
    shards = {"learners": 2, "mini_batch_size": 64, "runtime": "ray", "capacity": 100_000_000}
    whole, apart = (program(off_policy, table_on=where, **shards) for where in ("launcher", "learners"))
    kept, resident = rollouts(whole), rollouts(apart)
    assert (kept.resident, kept.file is None) == (False, False)
    assert (resident.resident, resident.file) == (True, None)
    assert replace(kept, file=None, resident=True) == resident
    assert whole.node("checkpointer").settings.table_file == kept.file
    stored = apart.node("checkpointer").settings
    assert (stored.table, stored.table_file) == (None, None)
    assert "each shard on the machine of its learner" in draw(apart)


def test_the_launchers_machine_has_memory_for_its_own_shard_of_a_table_that_lies_with_its_learners() -> None:
    shards = {"learners": 2, "mini_batch_size": 64, "runtime": "ray", "capacity": 100_000}
    whole, apart = (program(off_policy, table_on=where, **shards) for where in ("launcher", "learners"))
    assert 2 * table_memory(apart, alone=False) == table_memory(whole, alone=False) > 0
    assert shared_memory(whole) - shared_memory(apart) == table_memory(apart, alone=False)
    # Where this machine is the only one, all shards are here.
    assert table_memory(apart, alone=True) == table_memory(whole, alone=True)


def test_vectors_that_are_no_network_of_the_policy_have_one_histogram_each() -> None:
    parts = program(off_policy, tensorboard_histograms=True).node("checkpointer").settings.parts
    whole = {part.name: part.array for part in parts if part.name.endswith("/all")}
    assert whole == {"critic/all": "critic", "target.critic/all": "target.critic"}
    actor = [part for part in parts if part.array == "actor"]
    assert [part.first for part in actor[1:]] == [part.first + part.size for part in actor[:-1]]
