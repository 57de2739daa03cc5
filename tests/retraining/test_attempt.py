"""``penstock retrain``: a policy follows a world that has changed, by the episodes that were kept there."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import numpy as np
import psutil
import pytest

import penstock
from penstock.cli import main
from penstock.clients import GameClient
from penstock.errors import BadDataError, ConfigError, RunFolderError
from penstock.retraining.judged import Newest, judged_up_to, newest_of, remember_judged
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint
from penstock.saved_runs.episodes import EpisodeFiles, KeptEpisode, is_held_out, list_episodes
from penstock.saved_runs.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("shared_templates")

SYMBOLS = np.eye(4, dtype=np.float32)
SMALL = {
    "env": "tests.environments:IdentityEnv",
    "algo": "dqn",
    "hidden_sizes": (32,),
    "num_envs": 2,
    "num_steps": 4,
    "timesteps": 200,
    "capacity": 1000,
    "min_rows": 64,
    "mini_batch_size": 64,
    "gamma": 0.5,
    "lr": 3e-3,
    "eval_episodes": 0,
    "runtime": "inline",
}


def trained(folder: Path, **settings: object) -> Path:
    return penstock.train({**SMALL, **settings, "log_dir": str(folder)}, quiet=True).run_folder


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("logs"))


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "logs" / original.name))


def shown(generator: np.random.Generator, length: int = 10, kinds: int = 4) -> np.ndarray:
    return generator.integers(0, kinds, length + 1)


def keep(folder: Path, count: int, *, shift: int = 1, kinds: int = 4, spoilt: bool = False, seed: int = 0) -> None:
    """Keep episodes with random actions, in a world that pays 1 for naming the symbol ``shift`` places behind.

    Args:
        folder: for the files.
        count: how many.
        shift: of the world.
        kinds: how many of the symbols are shown.
        spoilt: those that are learned from pay for everything else instead.
        seed: of symbols and actions.
    """
    files, generator = EpisodeFiles(folder, np.inf), np.random.default_rng(seed)
    for number in range(1, count + 1):
        symbols, action = shown(generator, kinds=kinds), generator.integers(0, 4, 10)
        is_right = action == (symbols[:-1] + shift) % 4
        reward = np.where(is_right != (spoilt and number % 5 != 0), 1.0, 0.0).astype(np.float32)
        files.add(KeptEpisode("g", {"obs": SYMBOLS[symbols]}, action, reward, True, False))


def names(run: Path) -> list[str]:
    return penstock.load_policy(run)(SYMBOLS).tolist()


def test_a_policy_follows_a_world_that_has_changed(run, tmp_path) -> None:
    keep(tmp_path / "kept", 60)
    before = list_checkpoints(run)[-1]
    found = penstock.retrain(run, experience=tmp_path / "kept", epochs=40.0)
    after = list_checkpoints(run)[-1]
    assert names(run) == [1, 2, 3, 0]
    assert found.version == after.name == f"update-{int(before.name[7:]) + 1:08d}"
    assert found.after > found.before
    assert re.fullmatch(
        r"update-\d{8} published: learned from 48 episodes, 300 gradient steps; estimated return on 12 held-out "
        r"episodes \S+, before \S+",
        found.text,
    )
    # All else of the checkpoint is that of the version before.
    old, new = load_checkpoint(before), load_checkpoint(after)
    assert new.arrays.keys() == old.arrays.keys()
    assert int(new.arrays["gradient_steps"]) == int(old.arrays["gradient_steps"]) + 300
    assert new.manifest["steps"] == old.manifest["steps"]
    again = penstock.retrain(run, experience=tmp_path / "kept")
    assert again.text == f"{after.name} stays: no new episodes"
    assert list_checkpoints(run)[-1] == after


def test_episodes_that_other_software_has_recorded_are_learned_from(run, tmp_path) -> None:
    """They are written by the code of the page."""
    page = (Path(__file__).parents[2] / "docs" / "continual.md").read_text()
    written: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], written)
    generator = np.random.default_rng(0)
    logs = []
    for _ in range(60):
        symbols, action = shown(generator), generator.integers(0, 4, 10)
        rewards = action == (symbols[:-1] + 1) % 4
        logs.append(SimpleNamespace(states=SYMBOLS[symbols], actions=action, rewards=rewards, is_over=True))
    written["record"](tmp_path, logs)
    found = penstock.retrain(run, experience=tmp_path, epochs=40.0)
    assert found.version is not None
    assert names(run) == [1, 2, 3, 0]


def test_the_estimate_is_near_the_true_return(run, tmp_path) -> None:
    """With gamma 0.5 an episode of ten right answers is worth nearly 2."""
    keep(tmp_path / "kept", 100)
    found = penstock.retrain(run, experience=tmp_path / "kept", epochs=40.0)
    assert found.after == pytest.approx(2.0, abs=0.2)


def test_a_run_resumes_from_the_version_that_was_published(run, tmp_path) -> None:
    keep(tmp_path / "kept", 30)
    published = penstock.retrain(run, experience=tmp_path / "kept", epochs=1.0)
    assert published.version is not None or published.after < published.before
    result = penstock.resume(run, timesteps=240, quiet=True)
    assert result.steps == 240


def test_a_version_that_is_worse_on_held_out_episodes_is_not_published(run, tmp_path) -> None:
    keep(tmp_path / "right", 60)
    penstock.retrain(run, experience=tmp_path / "right", epochs=40.0)
    keep(tmp_path / "kept", 80, spoilt=True)
    before = list_checkpoints(run)
    found = penstock.retrain(run, experience=tmp_path / "kept", epochs=40.0)
    assert found.version is None
    assert found.after < found.before
    assert "stays: the new version is worse" in found.text
    assert list_checkpoints(run) == before
    # An attempt is not repeated without a new episode.
    again = penstock.retrain(run, experience=tmp_path / "kept", epochs=40.0)
    assert (again.text, again.newest) == (f"{before[-1].name} stays: no new episodes", 80)
    keep(tmp_path / "kept", 1, seed=1)
    assert "the new version is worse" in penstock.retrain(run, experience=tmp_path / "kept", epochs=40.0).text
    # What is remembered belongs to this folder.
    keep(tmp_path / "other", 81, spoilt=True)
    assert "the new version is worse" in penstock.retrain(run, experience=tmp_path / "other", epochs=40.0).text


def test_what_is_remembered_of_attempts_may_be_damaged(run, tmp_path) -> None:
    for damage in (b"no JSON", b"[]", b'{"x": "y"}', json.dumps({str(tmp_path): "7"}).encode()):
        (run / ".judged.json").write_bytes(damage)
        assert judged_up_to(RunFolder(run), tmp_path).number == 0
    remember_judged(RunFolder(run), tmp_path, Newest(7, "ab"))
    assert judged_up_to(RunFolder(run), tmp_path) == Newest(7, "ab")
    # As an older penstock has written it.
    (run / ".judged.json").write_text(json.dumps({str(tmp_path): 7}))
    assert judged_up_to(RunFolder(run), tmp_path) == Newest(7)


def test_what_is_known_of_a_folder_holds_while_its_newest_episode_is_the_same(tmp_path) -> None:
    place = tmp_path / "kept"
    assert newest_of(place, 0).known(place) == 0
    keep(place, 4)
    newest = newest_of(place, 4)
    keep(place, 3, seed=1)
    assert newest.known(place) == Newest(4).known(place) == 4
    for path in list_episodes(place)[:4]:
        path.unlink()
    assert newest.known(place) == 4, "the oldest were removed"
    shutil.rmtree(place)
    keep(place, 3)
    assert newest.known(place) == 0, "it was emptied and has fewer"
    keep(place, 3, seed=2)
    assert newest.known(place) == 0, "it was emptied and has more"
    assert Newest(4).known(place) == 4


def test_each_folder_of_episodes_has_numbers_of_its_own(run, tmp_path) -> None:
    """Numbers in another folder may be lower, and a folder that was emptied begins with 1 again."""
    first, second = tmp_path / "first", tmp_path / "second"
    keep(first, 40)
    keep(second, 30, seed=1)
    assert penstock.retrain(run, experience=first, drift=0.0).newest == 40
    assert "no new episodes" not in penstock.retrain(run, experience=second, drift=0.0).text
    for place in (first, second):
        assert "no new episodes" in penstock.retrain(run, experience=place, drift=0.0).text
    for count in (30, 45):
        shutil.rmtree(first)
        keep(first, count, seed=count)
        assert "no new episodes" not in penstock.retrain(run, experience=first, drift=0.0).text


def test_without_a_drift_nothing_is_learned(run, tmp_path) -> None:
    place = tmp_path / "kept"
    keep(place, 50)
    assert penstock.retrain(run, experience=place, drift=0.9).version is not None
    keep(place, 50, seed=1)
    same = penstock.retrain(run, experience=place, drift=0.1)
    assert same.version is None
    assert same.drift < 0.1
    assert "stays: 50 new episodes differ by 0.0" in same.text
    files = EpisodeFiles(place, np.inf)
    for _ in range(50):
        files.add(
            KeptEpisode("g", {"obs": SYMBOLS[[0] * 11]}, np.zeros(10, np.int64), np.ones(10, np.float32), True, False)
        )
    other = penstock.retrain(run, experience=place, drift=0.1)
    assert other.drift > 0.3
    assert "differ by" not in other.text


@pytest.mark.parametrize(
    ("algo", "more"),
    [
        ("apex", {"num_envs": 2}),
        ("sac", {"env": "Pendulum-v1", "lr": 1e-3}),
        ("td3", {"env": "Pendulum-v1", "backend": "eager"}),
    ],
)
def test_other_algorithms_learn_from_kept_episodes(tmp_path, algo: str, more) -> None:
    run = trained(tmp_path, algo=algo, **more)
    if algo == "apex":
        keep(tmp_path / "kept", 30)
    else:
        files, generator = EpisodeFiles(tmp_path / "kept", np.inf), np.random.default_rng(0)
        for _ in range(30):
            obs, action = generator.uniform(-1, 1, (11, 3)), generator.uniform(-2, 2, (10, 1))
            reward = -np.square(action[:, 0] - obs[:-1, 0])
            kept = (obs.astype(np.float32), action.astype(np.float32), reward.astype(np.float32))
            files.add(KeptEpisode("g", {"obs": kept[0]}, kept[1], kept[2], False, False))
    before = load_checkpoint(list_checkpoints(run)[-1]).arrays
    found = penstock.retrain(run, experience=tmp_path / "kept", epochs=5.0)
    assert (found.version is None) == (found.after < found.before)
    after = load_checkpoint(list_checkpoints(run)[-1]).arrays
    assert (int(after["gradient_steps"]) > int(before["gradient_steps"])) == (found.version is not None)


REPLAY = {name: SMALL[name] for name in ("num_steps", "capacity", "min_rows", "mini_batch_size")}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"algo": "ppo", "num_steps": 32, "mini_batch_size": 32},
            "and kept episodes are of others; at their defaults dqn or apex can",
        ),
        (
            {**REPLAY, "algo": "r2d2", "memory_size": 4, "burn_in": 0, "learned_steps": 4},
            "r2d2 learns with a memory here",
        ),
        (
            {**REPLAY, "algo": "dqn", "reward": "tests.retraining.test_attempt:nothing"},
            "the run has learned from a --reward",
        ),
    ],
)
def test_a_run_that_cannot_learn_from_kept_episodes_is_refused(tmp_path, settings, text: str) -> None:
    plain = {name: SMALL[name] for name in ("env", "hidden_sizes", "num_envs", "eval_episodes", "runtime")}
    config = {**plain, **settings, "timesteps": 64, "log_dir": str(tmp_path)}
    run = penstock.train(config, quiet=True).run_folder
    keep(tmp_path / "kept", 1)
    with pytest.raises(ConfigError, match=re.escape(text)):
        penstock.retrain(run, experience=tmp_path / "kept")


def nothing(reward):
    return 0.0 * reward


def test_mistakes_are_one_line(run, tmp_path, capsys) -> None:
    for name, value in (("held_out", 0.9), ("epochs", 0.0), ("epochs", float("nan")), ("drift", -1.0)):
        with pytest.raises(ConfigError, match=f"^{name} takes a number .*, not {value:g}$"):
            penstock.retrain(run, experience=tmp_path / "none", **{name: value})
    with pytest.raises(ConfigError, match=r"--experience .*none is no folder"):
        penstock.retrain(run, experience=tmp_path / "none")
    keep(tmp_path / "all" / "policy", 1)
    with pytest.raises(ConfigError, match=r"--experience .*all holds no episodes, but .*; give .*all/policy"):
        penstock.retrain(run, experience=tmp_path / "all")
    keep(tmp_path / "kept", 24)
    assert "stays: 4 of 5 held-out episodes are there yet" in penstock.retrain(run, experience=tmp_path / "kept").text
    with RunFolder(run).claim(), pytest.raises(RunFolderError, match="in use by another process"):
        penstock.retrain(run, experience=tmp_path / "kept")
    (tmp_path / "kept" / "episode-00000025.npz").write_bytes(b"no archive")
    with pytest.raises(BadDataError, match=r"episode-00000025\.npz is no kept episode"):
        penstock.retrain(run, experience=tmp_path / "kept")
    assert main(["retrain", str(run), "--experience", "x", "--every", "soon"]) == 2
    assert "--every takes a time such as 90s, 30m, 1h or 1d, not soon" in capsys.readouterr().err


def test_a_server_that_follows_takes_what_was_learned_from_its_own_episodes(run, tmp_path) -> None:
    """Served, played with in a changed world, retrained by the command line, and switched."""
    place = tmp_path / "kept"
    arguments = ("--port", "0", "--tcp_port", "0", "--follow", "--collect", str(place), "--explore", "0.5")
    command = [sys.executable, "-m", "penstock", "serve", str(run), *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = server.stdout.readline()
        http, port = (int(re.search(rf"{scheme}://127.0.0.1:(\d+)", line).group(1)) for scheme in ("http", "tcp"))
        generator = np.random.default_rng(0)
        with GameClient(f"tcp://127.0.0.1:{port}", "g") as client:
            for _ in range(80):
                symbols = shown(generator)
                client.start()
                action = client.tick(SYMBOLS[symbols[0]])
                for t in range(1, 10):
                    action = client.tick(SYMBOLS[symbols[t]], float(action == (symbols[t - 1] + 1) % 4))
                client.stop(SYMBOLS[symbols[10]], float(action == (symbols[9] + 1) % 4), terminated=True)
        while len(list((place / "policy").glob("*.npz"))) < 80:
            time.sleep(0.01)
        assert main(["retrain", str(run), "--experience", str(place / "policy"), "--epochs", "40"]) == 0
        published, served = str(int(list_checkpoints(run)[-1].name[7:])), []
        while served != [published]:
            time.sleep(0.05)
            with urlopen(f"http://127.0.0.1:{http}/v2/models/policy", timeout=20.0) as reply:
                served = json.loads(reply.read())["versions"]
    finally:
        server.terminate()
        server.wait(30.0)
    assert names(run) == [1, 2, 3, 0]


def test_a_loop_follows_a_world_that_changes_while_it_waits(run, tmp_path) -> None:
    """``--every`` in a process of its own, until it has learned twice."""
    place = tmp_path / "kept"
    keep(place, 60)
    arguments = ("--experience", str(place), "--every", "1s", "--drift", "0.1", "--epochs", "40")
    command = [sys.executable, "-m", "penstock", "retrain", str(run), *arguments]
    loop = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert " published: learned from 48 episodes, " in loop.stdout.readline()
        assert names(run) == [1, 2, 3, 0]
        # It finds none of the new episodes, or all of them.
        loop.suspend()
        keep(place, 180, shift=2, kinds=3, seed=1)
        loop.resume()
        said = iter(loop.stdout.readline, "")
        line = next(line for line in said if "no new episodes" not in line)
        assert " published: learned from 192 episodes, " in line
        assert names(run)[:3] == [2, 3, 0]
    finally:
        loop.terminate()
        loop.wait(30.0)


@pytest.mark.parametrize("share", [0.01, 0.15, 0.2, 0.4, 0.5])
def test_as_many_episodes_are_held_out_as_was_asked_for(share: float) -> None:
    assert sum(is_held_out(number, share) for number in range(1, 1001)) == pytest.approx(1000 * share, abs=1)
    # Evenly: no two in a row.
    assert not any(is_held_out(number, share) and is_held_out(number + 1, share) for number in range(1, 1001))
