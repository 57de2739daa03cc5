"""A run that does not fit into the machine is refused in one line, before anything starts."""

import re
import resource
import sys
from pathlib import Path

import pytest

import penstock
from penstock.cli import main
from penstock.errors import ResourceError
from penstock.memory.snapshots import SNAPSHOT_BYTES
from penstock.planning import plan
from penstock.processes import machine
from penstock.processes.machine import available_memory, shared_memory
from penstock.topologies import on_policy
from penstock.wiring.edges import Wiring
from tests.planned import prepared

pytestmark = pytest.mark.usefixtures("shared_templates")


def test_too_many_environments_are_refused_before_anything_is_there(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 1 << 30)
    settings = ["--env", "tests.environments:ClockEnv", "--num_workers", "2", "--log_dir", str(tmp_path / "logs")]
    assert main(["train", *settings, "--num_envs", "100000"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("penstock: error: this run needs at least ")
    assert "and 1.0 GiB are free; a smaller --num_envs needs less" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "logs").exists()


def test_a_table_that_is_too_large_is_told_how_large_it_may_be(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 256 << 20)
    settings = ["train", "--env", "Pendulum-v1", "--algo", "sac", "--num_workers", "1", "--log_dir", str(tmp_path)]
    assert main([*settings, "--capacity", "8000000"]) == 1
    said = capsys.readouterr().err
    fits = re.search(r"0\.2 GiB are free; a replay table of --capacity (\d+) rows fits\n$", said)
    assert fits is not None
    # What it says fits does, and ten percent more does not.
    monkeypatch.setattr("penstock.run.training.launch", lambda *_: sys.exit("started"))
    with pytest.raises(SystemExit, match="started"):
        main([*settings, "--capacity", fits[1]])
    assert main([*settings, "--capacity", str(int(fits[1]) * 11 // 10)]) == 1


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (["--algo", "sac", "--env", "Pendulum-v1"], 1),
        (["--algo", "sac", "--env", "Pendulum-v1", "--accumulate", "8"], 8),
        # Three seconds each. Shorter: parts of one learner, and one learner, whose minibatch is whole as well.
        pytest.param(["--algo", "sac", "--env", "Pendulum-v1", "--learners", "2"], 2, marks=pytest.mark.nightly),
        pytest.param(
            ["--algo", "sac", "--env", "Pendulum-v1", "--learners", "2", "--sync_mode", "non_blocking"],
            1,
            marks=pytest.mark.nightly,
        ),
        (["--env", "CartPole-v1"], 1),
    ],
)
def test_minibatches_that_are_too_large_are_told_how_large_they_may_be(
    tmp_path, capsys, monkeypatch, settings: list[str], part: int
) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 512 << 20)
    common = ["train", *settings, "--num_workers", "2", "--backend", "eager", "--log_dir", str(tmp_path)]
    assert main([*common, "--mini_batch_size", "800000"]) == 1
    said = capsys.readouterr().err
    found = re.search(
        r"GiB for minibatches\), and 0\.5 GiB are free; give a --mini_batch_size of at most (\d+)\n$", said
    )
    assert found is not None
    # Parts are of one size.
    most = int(found[1]) // part * part
    monkeypatch.setattr("penstock.run.training.launch", lambda *_: sys.exit("started"))
    with pytest.raises(SystemExit, match="started"):
        main([*common, "--mini_batch_size", str(most)])
    assert main([*common, "--mini_batch_size", str(most // 10 * 11 // part * part)]) == 1


def test_parts_of_a_minibatch_need_less(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 512 << 20)
    settings = {"env": "Pendulum-v1", "algo": "sac", "num_workers": 1, "backend": "eager", "log_dir": str(tmp_path)}
    monkeypatch.setattr("penstock.run.training.launch", lambda *_: sys.exit("started"))
    with pytest.raises(ResourceError, match="for minibatches"):
        penstock.train({**settings, "mini_batch_size": 400_000})
    with pytest.raises(SystemExit, match="started"):
        penstock.train({**settings, "mini_batch_size": 400_000, "accumulate": 20})


def test_processes_count_too(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 4 << 30)
    settings = {"env": "tests.environments:ClockEnv", "num_envs": 600, "num_workers": 600, "num_steps": 1}
    with pytest.raises(ResourceError, match=r"shared by 602 processes\), and 4\.0 GiB are free"):
        penstock.train({**settings, "log_dir": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_open_files_count_too(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    settings = {"env": "tests.environments:ClockEnv", "num_envs": 64, "num_workers": 64, "num_steps": 1}
    with pytest.raises(ResourceError, match=r"needs 90 open files, and 64 are allowed; type ulimit -n 90"):
        penstock.train({**settings, "log_dir": str(tmp_path)})


def test_a_resume_is_refused_too(tmp_path, monkeypatch) -> None:
    settings = {"env": "tests.environments:ClockEnv", "num_envs": 2, "num_workers": 1, "num_steps": 8}
    small = {**settings, "timesteps": 16, "mini_batch_size": 16, "eval_episodes": 1, "runtime": "inline"}
    run = penstock.train({**small, "log_dir": str(tmp_path)}, quiet=True).run_folder
    monkeypatch.setattr(machine, "available_memory", lambda: 1)
    with pytest.raises(ResourceError, match="this run needs at least"):
        penstock.resume(run, timesteps=32)


def test_what_draw_says_is_what_is_asked_for(capsys) -> None:
    assert main(["draw", "--env", "tests.environments:ClockEnv", "--num_envs", "100000", "--num_workers", "2"]) == 0
    assert "\nmemory\n  " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("MemTotal: 9 kB\nMemAvailable:    2048 kB\n", 2 << 20), ("MemTotal: 9 kB\n", None), ("nonsense", None)],
)
def test_what_is_free_is_read_where_the_system_says_it(tmp_path: Path, monkeypatch, text: str, bytes_) -> None:
    monkeypatch.setattr(machine, "_CGROUPS", ())
    (tmp_path / "meminfo").write_text(text)
    assert available_memory(tmp_path / "meminfo") == bytes_
    assert available_memory(tmp_path / "missing") is None


@pytest.fixture
def container(tmp_path: Path, monkeypatch) -> tuple[machine._Cgroup, ...]:
    """Folders in place of those of the system, version 2 and version 1. Both have no limit."""
    (tmp_path / "meminfo").write_text("MemAvailable: 2048 kB\n")
    found = tuple(cgroup._replace(folder=tmp_path / str(number)) for number, cgroup in enumerate(machine._CGROUPS))
    for cgroup in found:
        cgroup.folder.mkdir()
        (cgroup.folder / cgroup.limit).write_text("max\n")
    monkeypatch.setattr(machine, "_CGROUPS", found)
    return found


@pytest.mark.parametrize("version", [0, 1])
def test_a_containers_limit_counts(tmp_path: Path, container, version: int) -> None:
    assert available_memory(tmp_path / "meminfo") == 2 << 20
    (container[version].folder / container[version].limit).write_text("1000\n")
    assert available_memory(tmp_path / "meminfo") == 1000


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("used", "free"), [(700, 450), (120, 1000), (1200, 0)])
def test_what_a_container_uses_is_not_free_save_what_the_system_takes_back(
    tmp_path: Path, container, version: int, used: int, free: int
) -> None:
    cgroup = container[version]
    (cgroup.folder / cgroup.limit).write_text("1000\n")
    (cgroup.folder / cgroup.used).write_text(f"{used}\n")
    inactive, active, *_ = cgroup.spare
    (cgroup.folder / "memory.stat").write_text(f"anon 400\n{inactive} 100\n{active} 50\n")
    assert available_memory(tmp_path / "meminfo") == free


def test_room_for_snapshots_is_not_counted(tmp_path: Path) -> None:
    many = on_policy.build(plan(prepared(num_envs=1000, num_workers=1), tmp_path, quiet=True))
    nbytes = Wiring(many.edges, [(node.name, node.group) for node in many.nodes]).nbytes
    # Three snapshots a lane, and two more in the slots of the checkpointer.
    room = 5 * 1000 * SNAPSHOT_BYTES
    assert nbytes > room
    assert shared_memory(many) < nbytes - room
