import errno
import fcntl
import os
import subprocess
import sys
from datetime import datetime

import pytest

from penstock.config.sources import from_mapping, from_toml
from penstock.errors import RunFolderError
from penstock.saved_runs import run_folder
from penstock.saved_runs.durable import remove_folder, sweep, write_file
from penstock.saved_runs.run_folder import RunFolder, list_runs

NOON = datetime(2026, 1, 2, 12, 0, 0)
CONFIG = from_mapping({"env": "Pendulum-v1"})


def made(log_dir, env="Pendulum-v1", now=NOON):
    folder = RunFolder.fresh(log_dir, env, "ppo", now)
    folder.make()
    folder.write_config(CONFIG)
    return folder


def test_a_run_folder_is_named_after_environment_algorithm_and_time(tmp_path):
    folder = made(tmp_path / "new" / "logs")
    assert folder.path == tmp_path / "new" / "logs" / "Pendulum-v1-ppo-20260102-120000"
    assert folder.checkpoints.is_dir()
    assert from_toml(folder.config_path) == folder.read_config() == CONFIG


def test_a_name_that_another_run_has_taken_since_is_not_shared(tmp_path):
    first, second = (RunFolder.fresh(tmp_path, "X", "ppo", NOON) for _ in range(2))
    assert first.path == second.path
    assert [first.make(), second.make()] == [True, False]
    assert RunFolder.fresh(tmp_path, "X", "ppo", NOON).make()


def test_a_run_may_have_a_name_that_no_other_run_has(tmp_path):
    folder = RunFolder.named(tmp_path / "my logs", "pendulum")
    assert folder.make()
    assert folder.path == tmp_path / "my logs" / "pendulum"
    with pytest.raises(RunFolderError, match=r"pendulum exists and is no run; give another --run_name$"):
        RunFolder.named(tmp_path / "my logs", "pendulum")
    folder.write_config(CONFIG)
    says = (
        r"to go on with it: penstock resume pendulum --log_dir '.*/my logs', or in Python "
        r"penstock.resume\('.*/my logs/pendulum'\); or give --resume_if_exists True"
    )
    with pytest.raises(RunFolderError, match=says):
        RunFolder.named(tmp_path / "my logs", "pendulum")


def test_a_place_without_room_for_runs_is_refused_and_nothing_is_made(tmp_path, monkeypatch):
    RunFolder.check_place(tmp_path / "new" / "logs")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match=r"Not a directory; give another --log_dir$"):
        RunFolder.check_place(tmp_path / "file" / "logs")

    def refused(**_):
        raise PermissionError(errno.EACCES, "Permission denied")

    # For the superuser every folder can be written, so the system's answer is imitated.
    monkeypatch.setattr(run_folder.tempfile, "mkdtemp", refused)
    with pytest.raises(RunFolderError, match=r"Permission denied; give another --log_dir$"):
        RunFolder.check_place(tmp_path / "logs")


def test_a_log_directory_that_cannot_be_read_for_a_name_is_one_line(tmp_path, monkeypatch):
    def refused(path):
        raise OSError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(run_folder.Path, "is_file", refused)
    with pytest.raises(
        RunFolderError, match=r"^cannot make a run folder in .*: Permission denied; give another --log_dir$"
    ):
        RunFolder.named(tmp_path, "pendulum")


def test_a_lock_of_a_folder_that_was_removed_claims_nothing(tmp_path, monkeypatch):
    """1. One process opens the lock. 2. The one that holds it removes the folder and makes a new run of its name."""
    folder, lock = made(tmp_path), fcntl.flock

    def replaced(file, operation):
        remove_folder(folder.path)
        if again:
            folder.make()
            folder.write_config(CONFIG)
            (folder.path / ".lock").touch()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", replaced)
    for again in (True, False):
        with pytest.raises(RunFolderError, match="is in use by another process"), folder.claim():
            pass
        assert folder.path.exists() == again


def test_a_range_that_was_ignored_without_atoms_is_dropped(tmp_path):
    folder = made(tmp_path)
    settings = 'env = "CartPole-v1"\nalgo = "dqn"\nvalue_min = -1.0\nvalue_max = 5.0\natoms = '
    folder.config_path.write_text(settings + "1\n")
    assert folder.read_config() == from_mapping({"env": "CartPole-v1", "algo": "dqn", "atoms": 1})
    folder.config_path.write_text(settings + "51\n")
    assert folder.read_config().algorithm.value_max == 5.0


def test_two_runs_of_the_same_second_do_not_clash(tmp_path):
    names = [made(tmp_path).name for _ in range(3)]
    assert names == [f"Pendulum-v1-ppo-20260102-120000{end}" for end in ("", "-2", "-3")]


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("my_package.my_module:make_env", "my_package.my_module_make_env"),
        ("ALE/Pong-v5", "ALE_Pong-v5"),
        ("../../etc/passwd", "etc_passwd"),
        ("倒立摆", "env"),
        ("a b\n\0", "a_b"),
        ("x" * 500, "x" * 100),
    ],
)
def test_an_environments_name_becomes_safe_in_a_path(tmp_path, env, name):
    folder = made(tmp_path, env)
    assert folder.name == f"{name}-ppo-20260102-120000"
    assert folder.path.parent == tmp_path


def test_a_log_directory_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for log_dir in (tmp_path / "file", tmp_path / "file" / "logs", "/proc/logs", "a\0b"):
        with pytest.raises(RunFolderError, match="give another --log_dir") as refusal:
            RunFolder.fresh(log_dir, "X", "ppo").make()
        assert "\n" not in str(refusal.value)


def test_paths_with_spaces_and_other_letters(tmp_path):
    folder = made(tmp_path / "my läufe 跑")
    assert RunFolder.open(folder.path) == folder


def test_a_run_is_found_by_path_by_name_and_as_latest(tmp_path):
    first, second = made(tmp_path), made(tmp_path)
    os.utime(first.config_path, (100, 100))
    assert RunFolder.find(str(first.path), tmp_path) == first
    assert RunFolder.find(first.name, tmp_path) == first
    assert RunFolder.find("latest", tmp_path) == second
    assert list_runs(tmp_path) == [first.path, second.path]
    os.utime(second.config_path, (50, 50))
    assert RunFolder.find("latest", tmp_path) == first


def test_latest_is_the_run_that_was_begun_or_resumed_last_whatever_the_clock_says(tmp_path):
    first, second, third = made(tmp_path), made(tmp_path), made(tmp_path)
    for seconds, folder in ((300, first), (100, second)):
        folder.become_latest()
        os.utime(folder.config_path, (seconds, seconds))
    os.utime(third.config_path, (900, 900))
    # The third was begun by a version that did not number runs.
    assert list_runs(tmp_path) == [third.path, first.path, second.path]
    first.become_latest()
    assert RunFolder.find("latest", tmp_path) == first
    with second.claim():
        pass
    assert RunFolder.find("latest", tmp_path) == first, "what only prunes or retrains an older run begins nothing"
    (second.path / ".number").write_text("no number")
    assert list_runs(tmp_path) == [second.path, third.path, first.path]


def test_a_run_named_by_where_one_stands_has_its_own_name(tmp_path, monkeypatch):
    folder = made(tmp_path)
    monkeypatch.chdir(folder.checkpoints)
    assert RunFolder.open("..") == folder
    monkeypatch.chdir(folder.path)
    assert RunFolder.open(".") == folder


def test_a_tilde_stands_for_the_home_of_the_user(tmp_path, monkeypatch):
    folder = made(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunFolder.open(f"~/{folder.name}") == folder


def test_a_run_that_is_not_there(tmp_path):
    made(tmp_path)
    with pytest.raises(RunFolderError, match=r"did you mean Pendulum-v1-ppo-20260102-120000\?"):
        RunFolder.find("Pendulum-v1-ppo-20260102", tmp_path)
    with pytest.raises(RunFolderError, match="there is no run"):
        RunFolder.find("latest", tmp_path / "nowhere")
    part = made(tmp_path).checkpoints
    with pytest.raises(RunFolderError, match=f"checkpoints is a part of a run: give {part.parent}$"):
        RunFolder.find(str(part), tmp_path)
    with pytest.raises(RunFolderError, match=f"{tmp_path} holds runs: give one of them, such as {part.parent}$"):
        RunFolder.open(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFolderError, match=r"empty is no run folder: it has no config\.toml$"):
        RunFolder.open(tmp_path / "empty")
    with pytest.raises(RunFolderError, match=r"nowhere is no run folder: there is no such folder$"):
        RunFolder.open(tmp_path / "nowhere")
    (tmp_path / "notes.txt").touch()
    for find in (RunFolder.open, lambda path: RunFolder.find(str(path), tmp_path)):
        with pytest.raises(RunFolderError, match="checkpoints is a part of a run: give"):
            find(part)
        with pytest.raises(RunFolderError, match=r"config\.toml is a part of a run: give"):
            find(part.parent / "config.toml")
        with pytest.raises(RunFolderError, match=r"notes\.txt is a file; give the folder of a run$"):
            find(tmp_path / "notes.txt")
    (tmp_path / "manifest.json").touch()
    with pytest.raises(RunFolderError, match="is a bundle, which holds one policy; give the run that it came from"):
        RunFolder.find(str(tmp_path), tmp_path)
    with pytest.raises(RunFolderError, match="no run folder"):
        RunFolder.open("a\0b")


def test_only_one_process_writes_a_run(tmp_path):
    folder = made(tmp_path)
    program = (
        "import sys; from penstock.saved_runs.run_folder import RunFolder\n"
        f"with RunFolder.open({str(folder.path)!r}).claim(): print('claimed')"
    )
    with folder.claim():
        with pytest.raises(RunFolderError, match="in use by another process"), folder.claim():
            pass
        other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert "in use by another process" in other.stderr
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        == "claimed\n"
    )


def test_a_file_system_that_cannot_lock_files_is_named(tmp_path, monkeypatch):
    folder = made(tmp_path)

    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with (
        pytest.raises(RunFolderError, match="file system locks no files: No locks available; give another --log_d"),
        folder.claim(),
    ):
        pass


def test_a_run_whose_log_directory_is_gone_is_not_numbered(tmp_path):
    with pytest.raises(RunFolderError, match="cannot be written: No such file"):
        RunFolder(tmp_path / "gone" / "run").become_latest()


def test_claiming_sweeps_what_was_never_finished(tmp_path):
    folder = made(tmp_path)
    (folder.checkpoints / "update-00000001.partial").mkdir()
    (folder.checkpoints / "update-00000001.partial" / "state.safetensors").write_text("half")
    (folder.path / "README.md.partial").write_text("half")
    (folder.checkpoints / "update-00000002").mkdir()
    with folder.claim():
        assert [path.name for path in folder.checkpoints.iterdir()] == ["update-00000002"]
        assert not (folder.path / "README.md.partial").exists()


def test_sweeping_a_folder_that_is_not_there_is_nothing(tmp_path):
    sweep(tmp_path / "nowhere")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "card"
    write_file(path, b"old")

    def broken(_):
        raise OSError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="broken"):
            write_file(path, b"new")
    assert path.read_bytes() == b"old"
    write_file(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_run_that_is_removed_while_runs_are_listed_hides_no_other(tmp_path, monkeypatch):
    kept, removed = made(tmp_path), made(tmp_path, env="X")
    number = run_folder._number

    def number_of(path):
        # Between the look whether it is a run, and the look at its config.
        if path == removed.path and path.exists():
            remove_folder(path)
        return number(path)

    monkeypatch.setattr(run_folder, "_number", number_of)
    assert list_runs(tmp_path) == [kept.path]


def test_a_run_that_is_half_removed_is_no_run(tmp_path, monkeypatch):
    kept, removed = made(tmp_path), made(tmp_path, env="X")
    # As if the process died in between.
    monkeypatch.setattr("penstock.saved_runs.durable.shutil.rmtree", lambda *_, **__: None)
    remove_folder(removed.path)
    assert list_runs(tmp_path) == [kept.path]
