"""A run with shards on two machines ends or is killed, and the next one finds them where its learners run."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.exceptions import OutOfDiskError

from penstock.cluster import hosted_table
from penstock.cluster import shard_files as files
from penstock.cluster.cut import host_program, with_relay
from penstock.cluster.fetched import Fetched
from penstock.cluster.host import Host
from penstock.cluster.publications import Publications
from penstock.cluster.rings import News, take_news
from penstock.program.graph import Program
from penstock.replay.contents import contents
from penstock.replay.shard_file import ShardMark
from penstock.saved_runs.checkpoints import save_checkpoint
from penstock.saved_runs.shard_marks import NAMED, ShardName, kept_arrays, told
from penstock.types import Array
from tests.cluster.handing import sharded_program, wired

SLOTS, TAKEN = 6, 5
"""Slots of each writer, and those that the last commit accounts for."""
FACTS = {"env": "Pendulum-v1", "algorithm": "apex", "spaces": "Box", "steps": 64}


class Machine:
    """A machine whose host is in this process. It answers at once."""

    name = "a machine"

    def __init__(self, program: Program) -> None:
        self.host = Host(program, [])

    def ask(self, name: str, *arguments: Any) -> Any:
        return asyncio.run(getattr(self.host, name)(*arguments))


class Run:
    """One life of a run: its first learner at home, the other one on a machine."""

    def __init__(self, folder: Path, writers: int = 2) -> None:
        whole = sharded_program(algo="apex", env="CartPole-v1", table_on="learners", num_workers=writers)
        self.writers = range(writers)
        self.program = with_relay(whole)
        self.wiring = wired(self.program)
        self.machine = Machine(host_program(whole))
        self.table, self.trees = self.wiring.table_memory("rollouts"), self.wiring.trees("rollouts")
        self.publications = Publications(self.program, self.wiring, self.give_back)
        found = files.shard_files(self.program, self.wiring, folder)
        assert found is not None
        self.files = found
        self.gone: set[Machine] = set()

    def give_back(self, part: Array) -> None:
        part[...] = 0

    def place(self, group: str) -> Machine | None:
        return self.machine if group == "learner.1" else None

    def lost(self) -> set[Machine]:
        """As of a relay."""
        return self.gone

    def remember(self, machine: Any, found: Any) -> None:
        """As of a relay."""
        self.publications.remember(machine, found)

    def rest(self, machine: Any, shards: Sequence[int], taken: Sequence[int]) -> Iterator[News]:
        """As of a relay."""
        return self.publications.rest(machine, shards, taken)

    def fill(self) -> None:
        """Each writer fills its slots. The host has got the first two, and home has let go of them."""
        size = self.table.arrays["valid"][0].size
        for sequence in range(SLOTS):
            for writer in self.writers:
                index = self.table.claim(writer, sequence)
                for name, array in self.table.slot(index).items():
                    # Nothing is in the side areas.
                    array[...] = 0 if name.endswith("_count") else 10 * writer + sequence + 1
                self.trees.set(index * size, sequence, np.arange(size) + 10 * writer + sequence)
                self.table.push(writer, sequence)
            if sequence == 1:
                for news in self.rest(self.machine, [1], [2] * len(self.writers)):
                    take_news(self.hosted_table(), self.hosted_trees(), news, Fetched(()))
                self.publications._hosted[self.machine].arrived()
                self.publications._hosted[self.machine].let_go([2] * len(self.writers))

    def hosted_table(self) -> Any:
        return self.machine.host._wiring.table_memory("rollouts")

    def hosted_trees(self) -> Any:
        return self.machine.host._wiring.trees("rollouts")

    def find(self, checkpoint: Path | None) -> str:
        return self.files.find(checkpoint, self.place, self)

    def keep(self, update: int = 3) -> list[str]:
        return self.files.keep({"update": np.array(update)}, self.place, self)

    def write(self, update: int, taken: Sequence[int] = (TAKEN, TAKEN)) -> list[str]:
        """Have the shards written while the run goes on."""
        return self.files.write(
            ShardName(update, 90 + update), taken, self.place, self, rest=lambda *_: iter(()), limit_s=1.0
        )

    def get_slots(self) -> None:
        """The host gets the slots of its shard that it lacks."""
        for news in self.rest(self.machine, [1], [TAKEN] * len(self.writers)):
            take_news(self.hosted_table(), self.hosted_trees(), news, Fetched(()))

    def held(self) -> list[Any]:
        """What is in the slots of each shard where its rows lie: a column for each writer."""
        shards = self.table.shard(0, 2), self.hosted_table().shard(1, 2)
        ends = [[shard.written(writer) for writer in range(shard.writers)] for shard in shards]
        return [contents(*both)["reward"][:, 0].tolist() for both in zip(shards, ends, strict=True)]


@pytest.fixture
def new_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    monkeypatch.setattr(files, "answers", lambda asked, limit_s, over=None: asked)
    monkeypatch.setattr(hosted_table, "ARRIVAL_S", 0.0)
    return lambda **options: Run(tmp_path / "logs" / "run", **options)


def checkpoint(
    tmp_path: Path, update: int = 3, taken: Sequence[int] = (TAKEN, TAKEN), names: Sequence[ShardName | None] = ()
) -> Path:
    arrays = {"taken": np.array(taken), "update": np.array(update)}
    named = {NAMED: told(kept_arrays(names, 0))} if names else {}
    return save_checkpoint(tmp_path / "logs" / "run", arrays, {**FACTS, **named, "update": update})


def kept_files(tmp_path: Path) -> list[str]:
    """The files of shards: the beginning of their names."""
    return sorted(entry.name.partition("-")[2][:10] for entry in (tmp_path / "logs" / ".shards" / "run").iterdir())


def test_each_machine_keeps_its_shard_and_finds_it_again(new_run, tmp_path: Path) -> None:
    ended = new_run()
    ended.fill()
    saved = checkpoint(tmp_path)
    assert ended.keep() == []
    assert kept_files(tmp_path) == ["0.00000003", "1.00000003"]
    resumed = new_run()
    rows = 2 * TAKEN * 8 * 2
    assert resumed.find(saved) == f"all 2 shards of the replay table were found, with {rows:,} rows"
    # Home knows of all rows, and has those of its own shard; the machine has those of the other one.
    for writer in (0, 1):
        assert (resumed.table.first(writer), resumed.table.written(writer)) == (0, TAKEN)
    size = resumed.table.arrays["valid"][0].size
    for writer in (0, 1):
        at = resumed.table.index(writer, 0) * size
        ranks = resumed.trees.read(np.arange(at, at + TAKEN * size)).reshape(TAKEN, size)
        assert np.array_equal(ranks, np.arange(size) + 10 * writer + np.arange(TAKEN)[:, None])
    # Home had ranked one slot more of its shard.
    assert resumed.trees.largest().tolist() == [size - 1 + SLOTS - 1, size - 1 + 10 + TAKEN - 1]
    here, there = resumed.table.shard(0, 2), resumed.hosted_table().shard(1, 2)
    assert [contents(shard, [TAKEN])["reward"][:, 0, 0].tolist() for shard in (here, there)] == [
        [1.0, 2.0, 3.0, 4.0, 5.0],
        [11.0, 12.0, 13.0, 14.0, 15.0],
    ]
    assert resumed.table.arrays["reward"][resumed.table.index(1, 0)].max() == 0.0
    # The next life of a writer reads in the record where its lanes go on.
    assert resumed.table.arrays["rollout"][resumed.table.index(1, TAKEN - 1)] == -1
    # The first goal brings no slot that the machine has found.
    hosted = resumed.publications._hosted[resumed.machine]
    assert hosted.news([1], [TAKEN, TAKEN], 1).slots == []
    # If the machine is lost, they are.
    assert resumed.publications.lose(resumed.machine).rows == TAKEN * 8 * 2
    assert (resumed.table.held(0, TAKEN), resumed.table.held(1, TAKEN)) == (TAKEN, 0)


def test_a_run_that_goes_on_from_another_checkpoint_begins_with_an_empty_table(new_run, tmp_path: Path) -> None:
    ended, earlier = new_run(), checkpoint(tmp_path)
    ended.fill()
    checkpoint(tmp_path, update=4)
    assert ended.keep(update=4) == []
    resumed = new_run()
    assert "the replay table begins empty (no file of its shards belongs" in resumed.find(earlier)
    assert (resumed.table.written(0), resumed.table.written(1)) == (0, 0)
    # A new run looks for nothing.
    assert new_run().find(None) == ""


def test_a_shard_that_is_not_found_begins_empty(new_run, tmp_path: Path) -> None:
    ended = new_run()
    ended.fill()
    saved = checkpoint(tmp_path)
    ended.gone.add(ended.machine)
    assert ended.keep() == ["shard 1 of the replay table is not kept: a machine was lost"]
    resumed = new_run()
    rows = TAKEN * 8 * 2
    said = f"not bit-exact: of 2 shards of the replay table 1 were found, with {rows:,} rows; the others begin empty"
    assert resumed.find(saved) == said
    assert (resumed.table.written(0), resumed.table.written(1)) == (TAKEN, 0)


def test_a_run_that_ends_without_a_new_checkpoint_leaves_the_files_as_they_are(new_run, tmp_path: Path) -> None:
    ended = new_run(writers=4)
    ended.fill()
    saved = checkpoint(tmp_path, taken=(5, 3, 5, 3))
    assert ended.keep() == []
    # The rings of a resume go on at the same sequence. The counts of the checkpoint do not fit them.
    rows = [[[3.0, 11.0], [4.0, 12.0], [5.0, 13.0]], [[23.0, 31.0], [24.0, 32.0], [25.0, 33.0]]]
    for _ in range(2):
        resumed = new_run(writers=4)
        assert "all 2 shards of the replay table were found" in resumed.find(saved)
        assert resumed.held() == rows
        assert resumed.keep() == []
    # At a second Ctrl-C it has learned more than its last checkpoint has.
    checkpoint(tmp_path, update=4, taken=(5, 5, 5, 5))
    assert resumed.keep(update=5) == []
    assert resumed.files.keep({}, resumed.place, resumed) == []
    resumed = new_run(writers=4)
    resumed.find(saved)
    assert resumed.held() == rows


def test_a_slot_that_comes_twice_is_told_of_and_ends_nothing(new_run, tmp_path: Path) -> None:
    """A call of home was still under way when the run ended."""
    ended = new_run()
    ended.fill()
    checkpoint(tmp_path)
    ended.hosted_table().claim(1, 2)
    ended.hosted_table().push(1, 2)
    (told,) = ended.keep()
    assert told.startswith("shard 1 of the replay table is not kept: ")


def test_a_disk_that_is_full_is_told_of_and_ends_nothing(new_run, tmp_path: Path, monkeypatch) -> None:
    ended = new_run()
    ended.fill()
    checkpoint(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("penstock.cluster.hosted_table.keep_shard", full)
    monkeypatch.setattr(files, "keep_shard", full)
    assert [line.partition(": ")[2] for line in ended.keep()] == ["[Errno 28] No space left on device"] * 2


def test_an_object_store_that_is_full_is_told_of_and_ends_nothing(new_run, tmp_path: Path, monkeypatch) -> None:
    ended = new_run()
    ended.fill()
    checkpoint(tmp_path)

    def full(*_: object) -> None:
        raise OutOfDiskError("no room for 4 MB")

    monkeypatch.setattr(ended.machine, "ask", full)
    (line,) = ended.keep()
    assert line.startswith("shard 1 of the replay table is not kept: the object store of this machine has no room: ")


def test_a_run_that_is_killed_finds_the_rows_of_its_last_checkpoint(new_run, tmp_path: Path) -> None:
    killed = new_run()
    killed.fill()
    killed.get_slots()
    assert killed.write(3) == []
    assert killed.files.names == [ShardName(3, 93)] * 2
    saved = checkpoint(tmp_path, names=killed.files.names)
    resumed = new_run()
    rows = 2 * TAKEN * 8 * 2
    assert resumed.find(saved) == f"all 2 shards of the replay table were found, with {rows:,} rows"
    assert resumed.held() == [[[first + slot] * 2 for slot in range(TAKEN)] for first in (1.0, 11.0)]
    # It is killed again before it has written any: its checkpoints still name them.
    again = new_run()
    later = checkpoint(tmp_path, update=4, names=resumed.files.names)
    said = f"not bit-exact: all 2 shards of the replay table were found, with {rows:,} rows"
    assert again.find(later) == f"{said}; rows that came after update 3 are missing"
    assert again.held() == resumed.held()


def test_a_run_that_is_killed_between_its_files_and_their_checkpoint_finds_those_before(
    new_run, tmp_path: Path
) -> None:
    killed = new_run()
    killed.fill()
    killed.get_slots()
    killed.write(3, (4, 4))
    saved = checkpoint(tmp_path, taken=(4, 4), names=killed.files.names)
    killed.write(4)
    assert kept_files(tmp_path) == ["0.00000003", "0.00000004", "1.00000003", "1.00000004"]
    # A large table: the next files are written before a checkpoint names these.
    killed.write(5)
    assert kept_files(tmp_path) == [f"{shard}.0000000{update}" for shard in (0, 1) for update in (3, 4, 5)]
    resumed = new_run()
    assert resumed.find(saved).startswith("all 2 shards of the replay table were found")
    assert [len(shard) for shard in resumed.held()] == [4, 4]
    # Once a checkpoint names later files, those before them go.
    checkpoint(tmp_path, update=5, names=killed.files.names)
    killed.write(6)
    assert kept_files(tmp_path) == ["0.00000005", "0.00000006", "1.00000005", "1.00000006"]


def test_the_files_of_a_run_that_ended_stay_until_a_checkpoint_names_later_ones(new_run, tmp_path: Path) -> None:
    ended = new_run()
    ended.fill()
    saved = checkpoint(tmp_path)
    assert ended.keep() == []
    resumed = new_run()
    resumed.find(saved)
    # The checkpointer dies after its question, and its next life asks again.
    resumed.write(4)
    resumed.write(5)
    assert kept_files(tmp_path) == [f"{shard}.0000000{update}" for shard in (0, 1) for update in (3, 4, 5)]
    assert new_run().find(saved).startswith("all 2 shards of the replay table were found")


def test_a_machine_that_dies_between_its_file_and_its_answer_leaves_the_name_of_the_one_before(
    new_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = new_run()
    killed.fill()
    killed.get_slots()
    killed.write(3, (4, 4))
    with monkeypatch.context() as dead:
        dead.setattr(files, "answers", lambda asked, limit_s, over: {})
        assert killed.write(4) == ["shard 1 of the replay table is not kept: its machine does not answer"]
    assert killed.files.names == [ShardName(4, 94), ShardName(3, 93)]
    resumed = new_run()
    rows = (TAKEN + 4) * 8 * 2
    said = f"not bit-exact: all 2 shards of the replay table were found, with {rows:,} rows"
    found = resumed.find(checkpoint(tmp_path, update=4, names=killed.files.names))
    assert found == f"{said}; rows that came after update 3 are missing"
    assert [len(shard) for shard in resumed.held()] == [TAKEN, 4]


def test_a_shard_without_a_file_is_named_by_no_checkpoint_and_begins_empty(new_run, tmp_path: Path) -> None:
    killed = new_run()
    killed.fill()
    # The host lacks slots of the checkpoint, and they do not come.
    assert killed.write(3) == ["shard 1 of the replay table is not kept: it lacks slots of the checkpoint"]
    assert killed.files.names == [ShardName(3, 93), None]
    resumed = new_run()
    said = "not bit-exact: of 2 shards of the replay table 1 were found, with 80 rows; the others begin empty"
    assert resumed.find(checkpoint(tmp_path, names=killed.files.names)) == said


def test_a_run_that_ends_with_the_files_of_its_last_checkpoint_writes_them_only_once(new_run, tmp_path: Path) -> None:
    ended = new_run()
    ended.fill()
    ended.get_slots()
    ended.write(3)
    saved = checkpoint(tmp_path, names=ended.files.names)
    assert ended.keep() == []
    assert kept_files(tmp_path) == ["0.00000003", "1.00000003"]
    assert new_run().find(saved).startswith("all 2 shards")
    # It has gone on since, and its last checkpoint names older files. These are kept as well.
    saved = checkpoint(tmp_path, update=4, names=ended.files.names)
    assert ended.keep(update=4) == []
    assert kept_files(tmp_path) == ["0.00000003", "0.00000004", "1.00000003", "1.00000004"]
    assert new_run().find(saved).startswith("all 2 shards")


def test_a_host_gives_up_a_file_once_a_later_one_of_its_shard_is_asked_for(
    new_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_table, "ARRIVAL_S", 60.0)
    run, paths = new_run(), [tmp_path / "earlier.table", tmp_path / "later.table"]
    run.fill()

    async def both() -> list[str]:
        # The slots of the earlier one never come.
        ends = (TAKEN, 2)
        return await asyncio.gather(
            *(
                run.machine.host.keep_shard(1, str(path), ShardMark("a", 3, (end,)), ())
                for path, end in zip(paths, ends, strict=True)
            )
        )

    assert asyncio.run(both()) == ["it lacks slots of the checkpoint", ""]
    assert [path.exists() for path in paths] == [False, True]


def test_a_host_writes_a_shard_once_all_its_slots_have_come(new_run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hosted_table, "ARRIVAL_S", 60.0)
    run, path = new_run(), tmp_path / "shard-1.table"
    run.fill()

    async def both() -> str:
        writing = asyncio.create_task(run.machine.host.keep_shard(1, str(path), ShardMark("a", 3, (TAKEN,)), ()))
        await asyncio.sleep(3 * hosted_table.LOOK_S)
        assert not path.exists()
        run.get_slots()
        return await writing

    assert asyncio.run(both()) == ""
    assert path.exists()
