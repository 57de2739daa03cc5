"""A table in a file of the run folder: the same answer as in memory, and a resume after any end of the run."""

import contextlib
import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import penstock
from penstock.cli import main
from penstock.errors import ConfigError, ResourceError, RunFolderError
from penstock.processes import machine
from penstock.replay.contents import contents
from penstock.replay.table_file import mapped, read_header
from penstock.run import Result
from penstock.run.program import program_of
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint

pytestmark = pytest.mark.usefixtures("shared_templates")

TURN = 16 * 4
SMALL = {
    "env": "Pendulum-v1",
    "algo": "sac",
    "num_envs": 4,
    "num_steps": 16,
    "mini_batch_size": 16,
    "updates_per_step": 0.125,
    "min_rows": 100,
    "capacity": 6 * TURN,
    "hidden_sizes": (8, 8),
    "eval_episodes": 1,
    "seed": 5,
    "runtime": "inline",
    # Whatever the number of steps.
    "backend": "eager",
}
LARGE = 400 * TURN
LIMIT = "penstock.topologies.off_policy.TABLE_LIMIT"


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as a large one, in all processes of a run."""
    monkeypatch.setattr(LIMIT, 1000)


def train(log_dir: Path, turns: int, **settings: object) -> Result:
    values = {**SMALL, "log_dir": str(log_dir), "timesteps": turns * TURN, "num_workers": 1, **settings}
    return penstock.train(values, quiet=True)


def answer(run: Path) -> dict[str, str]:
    """Hashes of a run's result: its last checkpoint, and the rows that the checkpoint can sample from."""
    arrays = dict(load_checkpoint(find_checkpoint(run)).arrays)
    rings = read_header(run / "replay.table").rings
    table, tree = rings.structures(mapped(run / "replay.table", rings))
    arrays |= {f"table.{name}": values for name, values in contents(table, arrays["taken"].tolist(), tree).items()}
    # How long the run took is no part of the answer.
    arrays["taken"] = arrays["taken"].max()
    return {
        name: hashlib.sha256(v.tobytes()).hexdigest() for name, v in arrays.items() if not name.startswith("elapsed")
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Twenty turns in one go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMIT, 1000)
        return answer(train(tmp_path_factory.mktemp("whole"), 20).run_folder)


def test_it_is_the_answer_of_a_table_in_memory(tmp_path: Path, whole: dict[str, str], monkeypatch) -> None:
    monkeypatch.undo()
    run = train(tmp_path, 20).run_folder
    assert not (run / "replay.table").exists()
    arrays = load_checkpoint(find_checkpoint(run)).arrays
    for name in ("actor", "critic", "log_alpha", "gradient_steps"):
        assert hashlib.sha256(arrays[name].tobytes()).hexdigest() == whole[name]


def test_on_several_processes_too(tmp_path: Path, whole: dict[str, str]) -> None:
    assert answer(train(tmp_path, 20, runtime="local", num_workers=2).run_folder) == whole


# Shorter: once the ring has gone round; with more processes than before.
@pytest.mark.parametrize("turns", [pytest.param(4, marks=pytest.mark.nightly), 11])
@pytest.mark.parametrize(
    ("before", "after"), [(1, 4), *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((2, 2), (4, 1)))]
)
def test_a_run_that_ended_in_order_is_resumed_exactly(
    tmp_path: Path, whole: dict[str, str], turns: int, before: int, after: int
) -> None:
    first = train(tmp_path, turns, num_workers=before)
    config = first.run_folder / "config.toml"
    config.write_text(config.read_text().replace(f"num_workers = {before}\n", f"num_workers = {after}\n"))
    second = penstock.resume(first.run_folder, timesteps=20 * TURN, quiet=True)
    assert second.notes == ()
    assert answer(second.run_folder) == whole


def killed(log_dir: Path, turns: int, **settings: object) -> Path:
    """The folder of a run whose processes were all killed at once, after it had a checkpoint of this many turns."""
    values = {**SMALL, "runtime": "local", "num_workers": 2, "timesteps": 10**7, "save_interval": 5, **settings}
    values["log_dir"] = str(log_dir)
    limit = "import penstock.topologies.off_policy as at; at.TABLE_LIMIT = 1000"
    script = f"{limit}; import penstock; penstock.train({values!r}, quiet=True)"
    launcher = psutil.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = None
    while run is None or not any(int(path.name[7:]) >= turns for path in list_checkpoints(run)):
        assert launcher.poll() is None
        time.sleep(0.01)
        run = next(log_dir.iterdir(), None) if log_dir.exists() else None
    processes = [launcher, *launcher.children(recursive=True)]
    for process in processes:
        # The warden is about to do the same.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes)
    launcher.wait()
    return run


# Twelve seconds each. Shorter: a run goes back to an earlier checkpoint below. In ``tests/replay/test_resumed.py``
# rows that came after a checkpoint are forgotten.
@pytest.mark.nightly
@pytest.mark.parametrize("workers", [2, 4])
def test_a_run_that_was_killed_as_a_whole_is_resumed_exactly_where_nothing_was_overwritten(
    tmp_path: Path, workers: int
) -> None:
    run = killed(tmp_path / "killed", 10, capacity=LARGE)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("num_workers = 2\n", f"num_workers = {workers}\n"))
    turns = load_checkpoint(find_checkpoint(run)).manifest["update"] + 5
    second = penstock.resume(run, timesteps=turns * TURN, quiet=True)
    assert (second.notes, second.updates) == ((), turns)
    assert answer(run) == answer(train(tmp_path, turns, capacity=LARGE).run_folder)


@pytest.mark.nightly  # Nine seconds. Shorter: ``tests/replay/test_resumed.py`` overwrites rows, without a run.
def test_what_was_overwritten_since_is_left_out_and_said(tmp_path: Path) -> None:
    run = killed(tmp_path, 10, save_interval=10)
    path = run / "replay.table"
    rings = read_header(path).rings
    table, _ = rings.structures(mapped(path, rings))
    turns = load_checkpoint(find_checkpoint(run)).manifest["update"]
    # Of each writer's ring of seven: six before the checkpoint, less what the next turns have begun to replace.
    lost = sum(max(0, table.first(writer) - max(0, turns - 6)) for writer in range(2)) * TURN // 2
    del table
    second = penstock.resume(run, timesteps=(turns + 3) * TURN, quiet=True)
    assert second.updates == turns + 3
    what = f"of {6 * TURN} replay rows {min(lost, 6 * TURN)} were overwritten after the checkpoint and are left out"
    assert second.notes == ((f"not bit-exact: {what}; all else continued",) if lost else ())


def test_a_resume_that_does_not_find_it_begins_with_an_empty_table_and_says_so(tmp_path: Path) -> None:
    first = train(tmp_path, 10)
    (first.run_folder / "replay.table").unlink()
    second = penstock.resume(first.run_folder, timesteps=14 * TURN, quiet=True)
    assert second.notes == (
        "not bit-exact: the replay table begins empty (there is no replay.table); all else continued",
    )
    before, after = (load_checkpoint(find_checkpoint(second.run_folder, name)).arrays for name in ("10", "14"))
    # 64 rows of one turn are fewer than min_rows: no step in the first turn, 8 in each of the other three.
    assert after["gradient_steps"] - before["gradient_steps"] == 24


def test_a_table_that_was_small_enough_for_checkpoints_moves_into_a_file(tmp_path: Path, whole, monkeypatch) -> None:
    monkeypatch.setattr(LIMIT, 1 << 30)
    first = train(tmp_path, 11)
    monkeypatch.setattr(LIMIT, 1000)
    second = penstock.resume(first.run_folder, timesteps=20 * TURN, quiet=True)
    assert second.notes == ()
    assert answer(second.run_folder) == whole


def test_one_that_is_in_a_file_and_is_now_small_enough_is_told_of(tmp_path: Path, monkeypatch) -> None:
    first = train(tmp_path, 4)
    monkeypatch.setattr(LIMIT, 1 << 30)
    second = penstock.resume(first.run_folder, timesteps=8 * TURN, quiet=True)
    (note,) = second.notes
    assert note.startswith("not bit-exact: the replay table begins empty (its rows did not go with the checkpoint)")


def test_a_run_says_where_its_table_lies_and_how_large_it_is(tmp_path: Path, capsys) -> None:
    settings = [word for name, value in SMALL.items() for word in (f"--{name}", _typed(value))]
    assert main(["train", *settings, "--log_dir", str(tmp_path), "--num_workers", "1", "--timesteps", "640"]) == 0
    (run,) = tmp_path.iterdir()
    kib = (run / "replay.table").stat().st_size / (1 << 10)
    line = f"the replay table is a file of {kib:.1f} KiB: {run}/replay.table; a smaller --capacity needs less\n"
    assert capsys.readouterr().out.partition("\n")[2].startswith(line)
    assert main(["resume", str(run), "--timesteps", "1280"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert f"the replay table is a file of {kib:.1f} KiB, 384 rows in it: {run}/replay.table" in said


def _typed(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_rows_that_were_altered_between_two_runs_are_told_of(tmp_path: Path) -> None:
    run = train(tmp_path, 4).run_folder
    rings = read_header(run / "replay.table").rings
    table, _ = rings.structures(mapped(run / "replay.table", rings))
    table.arrays["reward"][table.index(0, 2), 3, 1] = np.nan
    again = penstock.resume(run, timesteps=6 * TURN, quiet=True)
    assert again.updates == 6
    assert again.notes[0].startswith(
        f"not bit-exact: of {4 * TURN} replay rows {3 * TURN} are left out, {3 * TURN} of them because the "
    )
    # The rows of this run are whole again.
    assert penstock.resume(run, timesteps=8 * TURN, quiet=True).notes == ()


def test_a_program_is_built_once(tmp_path: Path, monkeypatch) -> None:
    built = []
    for module in ("training", "resuming"):
        monkeypatch.setattr(f"penstock.run.{module}.program_of", lambda plan: built.append(plan) or program_of(plan))
    run = train(tmp_path, 2).run_folder
    assert len(built) == 1
    penstock.resume(run, timesteps=4 * TURN, quiet=True)
    assert len(built) == 2


def test_settings_that_make_no_program_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--reuse 2 needs --sync_mode non_blocking"):
        train(tmp_path, 2, reuse=2.0)
    assert not [*tmp_path.iterdir()]


def test_it_is_told_of_where_a_program_is_drawn(tmp_path: Path, capsys) -> None:
    settings = ["draw", "--env", "Pendulum-v1", "--algo", "sac", "--num_workers", "1", "--capacity", "1000"]
    assert main([*settings, "--log_dir", str(tmp_path)]) == 0
    assert ", in a file of " in capsys.readouterr().out
    assert not [*tmp_path.iterdir()]


def test_a_disk_that_is_too_small_is_told_of_with_what_fits(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(machine, "_free_on_disk", lambda _: 50 << 20)
    settings = ["train", "--env", "Pendulum-v1", "--algo", "sac", "--num_workers", "1", "--log_dir", str(tmp_path)]
    assert main([*settings, "--capacity", "1000000"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("penstock: error: the replay table of this run needs a file of ")
    assert said.endswith("rows fit, or give another --log_dir\n")
    assert not [*tmp_path.iterdir()]
    fits = said.split("--capacity ")[1].split()[0]
    # What it says fits does, and ten percent more does not.
    monkeypatch.setattr("penstock.run.training.launch", lambda *_: sys.exit("started"))
    with pytest.raises(SystemExit, match="started"):
        main([*settings, "--capacity", fits])
    assert main([*settings, "--capacity", str(int(fits) * 11 // 10)]) == 1


def test_a_file_that_is_there_needs_no_more_room(tmp_path: Path, monkeypatch) -> None:
    run = train(tmp_path, 4).run_folder
    monkeypatch.setattr(machine, "_free_on_disk", lambda _: 0)
    assert penstock.resume(run, timesteps=6 * TURN, quiet=True).updates == 6
    (run / "replay.table").unlink()
    with pytest.raises(ResourceError, match=r"needs a file of .*, and 0\.0 \w+ are free in "):
        penstock.resume(run, timesteps=8 * TURN, quiet=True)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda run, other: (run / "replay.table").write_bytes(b"x" * 70_000), "it is no replay table"),
        (lambda run, other: _cut(run / "replay.table"), " bytes"),
        (lambda run, other: shutil.copy(other / "replay.table", run), "it is of another run"),
        (lambda run, other: _edit(run, "num_steps = 16", "num_steps = 8"), "it is of another layout: its obs is "),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line_before_anything_changes(tmp_path: Path, harm, says: str) -> None:
    run, other = (train(tmp_path / name, 2).run_folder for name in ("one", "other"))
    harm(run, other)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name[:1] not in ".r"}
    with pytest.raises(RunFolderError) as error:
        penstock.resume(run, timesteps=8 * TURN, quiet=True)
    said = str(error.value)
    assert says in said
    assert "\n" not in said
    assert said.endswith(f"; to go on with an empty table: rm {run}/replay.table && penstock resume {run}")
    assert before == {
        path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name[:1] not in ".r"
    }
    # What it says works.
    (run / "replay.table").unlink()
    assert penstock.resume(run, timesteps=4 * TURN, quiet=True).steps == 4 * TURN


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _edit(run: Path, old: str, new: str) -> None:
    config = run / "config.toml"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))


def test_a_run_goes_back_to_an_earlier_checkpoint_exactly_where_nothing_was_overwritten(tmp_path: Path) -> None:
    run = train(tmp_path, 20, save_interval=10, capacity=LARGE).run_folder
    before = answer(run)
    second = penstock.resume(run, checkpoint="10", quiet=True)
    assert (second.notes, second.updates) == ((), 20)
    assert answer(run) == before


def test_priorities_stay_in_the_file_and_what_is_not_the_checkpoints_is_said(tmp_path: Path) -> None:
    settings = {"algo": "dqn", "env": "CartPole-v1", "prioritised": True, "capacity": LARGE, "save_interval": 10}
    run = train(tmp_path, 20, **settings).run_folder
    before = answer(run)
    assert "table.priority" in before
    again = penstock.resume(run, quiet=True)
    assert again.notes[0].startswith("nothing to do: ")
    assert answer(run) == before
    second = penstock.resume(run, checkpoint="10", quiet=True)
    what = "priorities of replay rows are those of the run's end, not of the checkpoint"
    assert second.notes == (f"not bit-exact: {what}; all else continued",)
    assert second.updates == 20
