"""A copy of a run folder has what a resume needs, whatever happens to the original meanwhile."""

import contextlib
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import ray

from penstock.cluster import copies, safekeeping
from penstock.cluster.copies import Copy, Delivery, Original, Piece
from penstock.metrics.report import Report
from penstock.metrics.tensorboard import EVENTS, TensorBoard
from penstock.saved_runs.best import prune_checkpoints
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint, save_checkpoint
from penstock.saved_runs.durable import remove_folder
from penstock.saved_runs.run_folder import RunFolder
from penstock.saved_runs.versions import ORIGIN, lineage, pin, unpin

FACTS = {"env": "E", "algorithm": "ppo", "spaces": "S", "steps": 0}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PIECE", 100)
    monkeypatch.setattr(copies, "SMALL_PIECE", 100)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "logs" / "run")
    folder.checkpoints.mkdir(parents=True)
    folder.config_path.write_text("seed = 1\n")
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path / "elsewhere", "run", "now")


def save(run: RunFolder, update: int) -> Path:
    return save_checkpoint(run.path, {"weights": np.full(50, update)}, {**FACTS, "update": update})


def send(original: Original, copy: Copy, held: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Deliver until the copy lacks nothing."""
    while (delivery := original.next(held)).pieces or delivery.complete:
        held = copy.take(delivery)
    return held


def content(folder: RunFolder) -> dict[str, bytes]:
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_a_copy_has_what_the_run_has(run: RunFolder, copy: Copy) -> None:
    for name, text in (("0123/own_env.py", "x = 1\n" * 50), ("0123/pack/__init__.py", ""), ("4567/own_env.py", "")):
        (run.code / name).parent.mkdir(parents=True, exist_ok=True)
        (run.code / name).write_text(text)
    run.metrics_path.write_text("line\n" * 100)
    board = TensorBoard(run.path, "steps")
    original = Original(run)
    save(run, 1)
    held = send(original, copy)
    run.metrics_path.open("a").write("more\n")
    board.write(Report(1, 8, 0.5, {"loss": 1.0}))
    # Each life of the monitor writes a file of its own.
    TensorBoard(run.path, "steps").close()
    run.deaths.write_text("died")
    run.log_path.write_text("update 10")
    run.launches_path.write_text("{}")
    save(run, 2)
    assert send(original, copy, held) == ("update-00000001", "update-00000002")
    settled = copy.settle()
    assert settled.path.parent.name == "elsewhere"
    assert content(settled) == content(run)
    assert len(list(settled.path.glob(f"{EVENTS}*"))) == 2


def test_a_removed_copy_stays_removed_although_a_delivery_was_under_way(run: RunFolder, copy: Copy) -> None:
    save(run, 1)
    delivery = Original(run).next(())
    copy.remove()
    assert copy.take(delivery) == ()
    assert not list((run.path.parent.parent / "elsewhere").iterdir())


def test_what_a_resumed_run_prunes_and_says_of_its_origin_is_the_same_in_a_copy(run: RunFolder, copy: Copy) -> None:
    (run.path / ORIGIN).write_text('{"run": "another", "checkpoint": "update-00000001"}')
    for update in (1, 2, 3):
        save(run, update)
    pin(run.path, "1")
    pin(run.path, "2")
    original = Original(run)
    held = send(original, copy)
    unpin(run.path, "2")
    copy.take(original.next(held))
    settled = copy.settle()
    assert content(settled) == content(run)
    assert lineage(settled.path) == lineage(run.path)
    prune_checkpoints(settled.path, keep=1)
    assert [path.name for path in list_checkpoints(settled.path)] == ["update-00000001", "update-00000003"]


def test_long_logs_come_in_deliveries_that_arrive_soon(run: RunFolder, copy: Copy) -> None:
    run.metrics_path.write_text("line\n" * 100)
    run.deaths.write_text("died\n" * 100)
    for life in range(5):
        (run.path / f"{EVENTS}.{life}").write_bytes(bytes([life]) * 250)
    save(run, 1)
    original, held = Original(run), ()
    while (delivery := original.next(held)).pieces or delivery.complete:
        # Of the logs together, and of the checkpoint.
        assert sum(len(piece.content) for piece in delivery.pieces) <= 2 * copies.PIECE
        held = copy.take(delivery)
    assert content(copy.settle()) == content(run)


def test_a_small_checkpoint_comes_whole_with_what_logs_have_grown_by(
    run: RunFolder, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "PIECE", 10_000)
    monkeypatch.setattr(copies, "SMALL_PIECE", 10_000)
    run.metrics_path.write_text("line\n")
    save(run, 1)
    original = Original(run)
    held = copy.take(original.next(()))
    assert held == ("update-00000001",)
    assert not original.behind
    save(run, 2)
    save(run, 3)
    held = copy.take(original.next(held))
    assert (held, original.behind) == (("update-00000001", "update-00000003"), True)
    held = copy.take(original.next(held))
    assert (len(held), original.behind) == (3, False)


def test_parts_of_a_small_checkpoint_are_sent_within_a_call_and_those_of_a_large_one_are_few(
    run: RunFolder, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "PIECE", 4 << 20)
    monkeypatch.setattr(copies, "SMALL_PIECE", 60_000)
    for values, deliveries in ((16_000, 3), (1_000_000, 2)):
        save_checkpoint(run.path, {"weights": np.zeros(values)}, {**FACTS, "update": values})
        original, sizes, held = Original(run), [], copy.checkpoints()
        while not (delivery := original.next(held)).complete:
            copy.take(delivery)
            sizes.append(delivery.nbytes)
        assert f"update-{values:08d}" in copy.take(delivery)
        assert len(sizes) + 1 == deliveries
        assert values > 16_000 or max(*sizes, delivery.nbytes) < 100_000


def test_the_newest_checkpoint_comes_first_and_those_that_are_gone_go(run: RunFolder, copy: Copy) -> None:
    original = Original(run)
    paths = [save(run, update) for update in (1, 2, 3)]
    held: tuple[str, ...] = ()
    while not held:
        held = copy.take(original.next(held))
    assert held == ("update-00000003",)
    held = send(original, copy, held)
    remove_folder(paths[0])
    save(run, 4)
    assert send(original, copy, held) == ("update-00000002", "update-00000003", "update-00000004")


def test_the_last_checkpoint_of_a_copy_stays_until_there_is_a_newer_one(run: RunFolder, copy: Copy) -> None:
    original = Original(run)
    old = save(run, 1)
    held = send(original, copy)
    save(run, 2)
    remove_folder(old)
    assert copy.take(original.next(held)) == ("update-00000001",)
    assert send(original, copy, held) == ("update-00000002",)


def test_a_checkpoint_that_is_removed_while_it_is_sent_arrives_all_the_same(run: RunFolder, copy: Copy) -> None:
    original = Original(run)
    path = save(run, 1)
    nbytes = sum(file.stat().st_size for file in path.iterdir())
    copy.take(original.next(()))
    remove_folder(path)
    save(run, 2)
    while not (delivery := original.next(())).complete:
        copy.take(delivery)
    assert copy.take(delivery) == ("update-00000001",)
    assert original.checkpoint_bytes == nbytes
    assert send(original, copy, ("update-00000001",)) == ("update-00000002",)
    assert [path.name for path in copy.settle().checkpoints.iterdir()] == ["update-00000002"]


def test_a_copy_gets_checkpoints_over_a_link_that_is_slower_than_the_run_removes_them(
    run: RunFolder, copy: Copy
) -> None:
    original = Original(run)
    kept = [save(run, 1)]
    held: tuple[str, ...] = ()
    for update in range(2, 60):
        held = copy.take(original.next(held))
        kept.append(save(run, update))
        if len(kept) > 2:
            remove_folder(kept.pop(0))
    assert held


def test_a_log_that_a_resume_has_cut_is_sent_anew(run: RunFolder, copy: Copy) -> None:
    original = Original(run)
    run.metrics_path.write_text("one\ntwo\nthree\n")
    send(original, copy)
    shorter = run.path / "shorter"
    shorter.write_text("one\nother two\nother three\n")
    shorter.replace(run.metrics_path)
    send(original, copy)
    assert copy.settle().metrics_path.read_text() == "one\nother two\nother three\n"


def test_a_damaged_checkpoint_is_not_taken_but_sent_again(run: RunFolder, copy: Copy) -> None:
    original = Original(run)
    path = save(run, 1)
    complete = False
    while not complete:
        delivery = original.next(())
        spoilt = tuple(piece._replace(content=piece.content[::-1]) for piece in delivery.pieces)
        assert copy.take(delivery._replace(pieces=spoilt)) == ()
        complete = bool(delivery.complete)
    assert send(original, copy) == (path.name,)
    assert load_checkpoint(copy.settle().checkpoints / path.name).manifest["update"] == 1


@pytest.mark.parametrize("lost", [1, 2, 4])
@pytest.mark.parametrize("arrives", [False, True], ids=["call lost", "answer lost"])
def test_a_delivery_that_is_lost_is_sent_again(
    run: RunFolder, copy: Copy, monkeypatch: pytest.MonkeyPatch, lost: int, arrives: bool
) -> None:
    """Ray has no room for it, or the answer does not come. It may have arrived."""
    calls = 0

    def take(delivery: Delivery) -> tuple[str, ...]:
        nonlocal calls
        calls += 1
        if calls == lost:
            if arrives:
                copy.take(delivery)
            raise ray.exceptions.ObjectStoreFullError("no room")
        return copy.take(delivery)

    monkeypatch.setattr(ray, "wait", lambda answers, timeout: (answers, []))
    monkeypatch.setattr(ray, "get", lambda answer: answer)
    deputy = object.__new__(safekeeping._Appointed)
    deputy._actor = SimpleNamespace(take=SimpleNamespace(remote=take))
    deputy._original, deputy._unanswered, deputy._held = Original(run), None, ()
    deputy._limit_s, deputy._under_way_s, deputy.transfer_s = 60.0, 0.0, 0.0
    run.metrics_path.write_text("".join(f'{{"update": {update}}}\n' for update in range(10)))
    run.launches_path.write_text("{}\n")
    save(run, 1)
    deputy.up_to_date = False
    for _ in range(30):
        with contextlib.suppress(ray.exceptions.RayError):
            deputy.hear(threading.Event())
    assert calls == 30
    assert deputy.up_to_date
    there = copy.settle()
    assert content(there) == content(run)


def test_a_name_that_is_taken_gets_a_number(run: RunFolder, tmp_path: Path) -> None:
    copy = Copy(run.path.parent, "run", "now")
    copy.take(Delivery((Piece("config.toml", 0, b"seed = 1\n"),), (), frozenset(), ""))
    assert copy.settle().name == "run-2"
    assert sorted(path.name for path in run.path.parent.iterdir()) == ["run", "run-2"]


def test_a_copy_that_is_removed_leaves_nothing(tmp_path: Path) -> None:
    one, other = Copy(tmp_path, "one", "now"), Copy(tmp_path, "other", "now")
    one.remove()
    assert list(tmp_path.iterdir())
    other.remove()
    assert not list(tmp_path.iterdir())


def test_a_copy_replaces_an_earlier_one_of_the_same_run(tmp_path: Path) -> None:
    for name in ("run", "run-2", "run"):
        Copy(tmp_path, name, "now")
    assert sorted(path.name.partition(".")[0] for path in (tmp_path / copies.COPIES).iterdir()) == ["run", "run-2"]


def test_a_copy_replaces_none_of_another_run_of_its_name(tmp_path: Path) -> None:
    """Two launchers on two machines may train runs of one name in folders of one path, and choose the same deputy."""
    part = Delivery((Piece("config.toml", 0, b"seed = 1\n"),), (), frozenset(), "")
    one, other = Copy(tmp_path, "run", "begun on a"), Copy(tmp_path, "run", "begun on b")
    one.take(part)
    other.take(part)
    assert (one.settle().name, other.settle().name) == ("run", "run-2")


def test_a_copy_that_somebody_has_removed_is_not_begun_anew(tmp_path: Path) -> None:
    """Its sender would not send again what was delivered."""
    copy = Copy(tmp_path, "run", "now")
    shutil.rmtree(tmp_path / copies.COPIES)
    with pytest.raises(FileNotFoundError):
        copy.take(Delivery((Piece("metrics.jsonl", 0, b"{}\n"),), (), frozenset(), ""))
