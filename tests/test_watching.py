"""Greedy episodes as an animated picture."""

import io
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from PIL import Image, ImageSequence

import penstock
from penstock.cli.entry import main
from penstock.errors import ConfigError, EnvError, RunFolderError
from penstock.nodes.evaluation import filming
from penstock.nodes.evaluation.episodes import Episode
from penstock.nodes.evaluation.filming import Reel
from penstock.saved_runs.run_folder import RunFolder
from penstock.watching import Watched
from tests.metrics.test_tensorboard import events, message, shown

LENGTH = 6
SMALL = {"num_envs": 2, "num_workers": 1, "num_steps": 16, "mini_batch_size": 16, "timesteps": 32}
SMALL |= {"hidden_sizes": (8,), "eval_episodes": 1, "runtime": "inline"}


class Shown(gymnasium.Env):
    """Its picture is as bright as its episode is old. Takes ten steps for each second, if it is shown."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode not in {None, "rgb_array"}:
            raise ValueError(f"there is no render_mode {render_mode}")
        self.render_mode = render_mode
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        del action
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, self.steps == LENGTH, False, {}

    def render(self) -> np.ndarray | None:
        return None if self.render_mode is None else np.full((100, 200, 3), 40 * self.steps, np.uint8)


class Unseen(Shown):
    """Takes no render_mode."""

    def __init__(self) -> None:
        super().__init__()


class Headless(Shown):
    """Trains on a machine that cannot draw."""

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode is not None:
            raise RuntimeError("no OpenGL library: set MUJOCO_GL=egl")
        super().__init__()


def trained(env: str, folder: Path) -> Path:
    return penstock.train({**SMALL, "env": f"{__name__}:{env}", "log_dir": str(folder)}, quiet=True).run_folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder."""
    return trained("Shown", tmp_path_factory.mktemp("logs"))


def pictures(path: Path) -> list[tuple[int, int]]:
    """Brightness and milliseconds of each picture of an animation."""
    found = []
    with Image.open(path) as image:
        for number in range(image.n_frames):
            image.seek(number)
            found.append((image.convert("RGB").getpixel((0, 0))[0], image.info["duration"]))
    return found


def test_each_step_of_each_episode_is_shown_and_its_end_stands_still(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "two.gif"
    found = penstock.watch(run, out, episodes=2)
    assert found.picture == out
    assert (found.returns, found.lengths) == ((6.0, 6.0), (6, 6))
    episode = [(40 * step, 100) for step in range(LENGTH)] + [(40 * LENGTH, 1000)]
    assert pictures(out) == 2 * episode
    with Image.open(out) as image:
        assert image.size == (200, 100)


def test_an_episode_that_takes_too_long_is_cut(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(run), "--out", str(tmp_path / "cut.gif"), "--seconds", "0.3"]) == 0
    assert pictures(tmp_path / "cut.gif") == [(0, 100), (40, 100), (80, 100)]
    said = capsys.readouterr().out
    assert said.splitlines()[1:] == [
        "episode 1 is cut after --seconds 0.3",
        f"picture: {tmp_path / 'cut.gif'}",
    ]


def test_the_picture_lies_in_the_run_folder_if_no_other_place_is_given(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(run)]) == 0
    assert (run / "episodes.gif").exists()
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == ["episode 1: return 6.0, 6 steps", f"picture: {run / 'episodes.gif'}"]


def test_tensorboard_shows_the_films_of_the_run_folder_at_the_steps_of_their_checkpoints(tmp_path: Path) -> None:
    settings = {**SMALL, "env": f"{__name__}:Shown", "log_dir": str(tmp_path), "timesteps": 64, "save_interval": 1}
    run = penstock.train(settings, quiet=True).run_folder
    penstock.watch(run, tmp_path / "apart.gif")
    assert not (run / "watched").exists()
    films = []
    for checkpoint in (1, 2):
        penstock.watch(run, checkpoint=str(checkpoint))
        films.append((run / "episodes.gif").read_bytes())
    paths = sorted((run / "watched").glob("events.out.tfevents.*"))
    # Two lanes of 16 steps make a batch.
    assert [events(path)[-1][2] for path in paths] == [32, 64]
    for path, film in zip(paths, films, strict=True):
        image = shown(events(path)[-1])["episodes"][4]
        assert dict(message(image)) == {1: 100, 2: 200, 3: 3, 4: film}


def test_what_cannot_be_shown_is_one_line(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="episodes of watch takes a whole number of at least 1"):
        penstock.watch(run, episodes=0)
    with pytest.raises(ConfigError, match=r"seconds of watch takes a number from 0\.1 to 300, not -1$"):
        penstock.watch(run, seconds=-1)
    with pytest.raises(ConfigError, match="seed of watch takes a whole number from 0 to"):
        penstock.watch(run, seed=-1)
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(RunFolderError, match=r"folder\.gif cannot be written: it is a folder$"):
        penstock.watch(run, tmp_path / "folder.gif")
    with pytest.raises(ConfigError, match="a window leaves no picture"):
        penstock.watch(run, tmp_path / "a.gif", window=True)
    with pytest.raises(ConfigError, match=r"picture\.png does not end in \.gif"):
        penstock.watch(run, tmp_path / "picture.png")
    with pytest.raises(RunFolderError, match=r"a\.gif cannot be written: there is no folder .*nowhere"):
        penstock.watch(run, tmp_path / "nowhere" / "a.gif")
    unseen = trained("Unseen", tmp_path)
    with pytest.raises(EnvError, match="has no picture: it renders no rgb_array, and observes no image"):
        penstock.watch(unseen)
    with pytest.raises(EnvError, match="opens no window: it takes no render_mode; let its class open one"):
        penstock.watch(unseen, window=True)
    with pytest.raises(EnvError, match='opens no window: it takes no render_mode "human"; let its class open one'):
        penstock.watch(run, window=True)


def test_an_episode_that_is_given_up_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = (Episode(0, 0.0, 0, spoilt=True), None, Episode(1, 6.0, 6))
    monkeypatch.setattr(filming, "play", lambda *_, **__: iter(ended))
    nothing: Any = SimpleNamespace(load=lambda _: None, close=lambda: None)
    settings: Any = SimpleNamespace(name="e", seed=0, make_backend=lambda: nothing)
    assert filming._played(settings, nothing, {}, 2, 60.0, is_enough=lambda: False) == ((6.0, 6),)


def test_a_window_that_cannot_close_loses_no_film_and_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck() -> None:
        raise OSError("the display is gone")

    def failing(*_: object, **__: object) -> Iterator[Episode]:
        yield Episode(0, 6.0, 6)
        raise EnvError("the game is over")

    nothing: Any = SimpleNamespace(load=lambda _: None, close=stuck)
    settings: Any = SimpleNamespace(name="e", seed=0, make_backend=lambda: nothing)
    monkeypatch.setattr(filming, "play", lambda *_, **__: iter([Episode(0, 6.0, 6)]))
    assert filming._played(settings, nothing, {}, 1, 60.0, is_enough=lambda: False) == ((6.0, 6),)
    monkeypatch.setattr(filming, "play", failing)
    with pytest.raises(EnvError, match="the game is over"):
        filming._played(settings, nothing, {}, 1, 60.0, is_enough=lambda: False)


@pytest.mark.parametrize(("seconds", "is_cut"), [(60.0, False), (0.05, True)])
def test_only_a_full_picture_cuts_an_episode(monkeypatch: pytest.MonkeyPatch, seconds: float, is_cut: bool) -> None:
    """The only episode is given up in its second step. Each step is shown for 0.1 s."""
    takes: list[Any] = []

    def played(*_: object, **__: object) -> Iterator[Episode | None]:
        takes[0](env_at(10), None, False)
        yield None
        takes[0](env_at(10), None, True)
        yield Episode(0, 0.0, 2, spoilt=True)

    source: Any = SimpleNamespace(agents=1, film=takes.append, close=lambda: None)
    monkeypatch.setattr(filming, "play", played)
    monkeypatch.setattr(filming, "_opened", lambda *_: (source, None))
    backend = SimpleNamespace(load=lambda _: None)
    settings: Any = SimpleNamespace(name="e", seed=0, make_backend=lambda: backend)
    found = filming.film(settings, {}, 1, seconds, 60.0)
    assert (found.episodes, found.is_cut) == ((), is_cut)


def test_episodes_that_are_missing_without_a_full_picture_are_not_called_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.fresh(tmp_path, "e", "ppo")
    folder.make()
    folder.write_config(penstock.from_mapping({"env": "e"}))
    shown = Watched("e", "update-00000001", (6.0,), (6,), None, is_cut=False)
    monkeypatch.setattr("penstock.watching.watch", lambda *_, **__: shown)
    assert main(["watch", str(folder.path), "--window", "--episodes", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == ["e, update-00000001", "episode 1: return 6.0, 6 steps"]


def env_of(picture: object, metadata: object = None) -> Any:
    return SimpleNamespace(metadata=metadata, render=lambda: picture)


@pytest.mark.parametrize(
    "metadata", [None, ["rgb_array"], *({"render_fps": odd} for odd in ("fast", -5, math.nan, math.inf, 1e-9))]
)
def test_an_odd_speed_is_not_believed(metadata: object) -> None:
    reel = Reel("e", seconds=60.0, episodes=1)
    reel.take(env_of(np.zeros((4, 8, 3), np.uint8), metadata), None, ended=False)
    assert reel._seconds == [1 / 30]


def test_why_an_environment_cannot_be_made_for_pictures_is_said(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="no OpenGL library: set MUJOCO_GL=egl"):
        penstock.watch(trained("Headless", tmp_path), tmp_path / "a.gif")


@pytest.mark.parametrize("odd", [np.zeros((0, 0, 3), np.uint8), np.ones((4, 8, 3), np.float32)], ids=["none", "floats"])
def test_what_is_no_picture_is_not_shown(odd: np.ndarray) -> None:
    reel = Reel("e", seconds=60.0, episodes=1)
    reel.take(env_of(odd), None, ended=False)
    assert not reel.pictures


def test_a_film_is_as_long_as_its_steps_say() -> None:
    """Hundredths of a second: 3, 3 and 4 for three of thirty pictures a second."""
    for speed in (20, 30):
        reel = Reel("e", seconds=60.0, episodes=1)
        for step in range(90):
            picture = np.full((4, 8, 3), 2 * step, np.uint8)
            reel.take(SimpleNamespace(metadata={"render_fps": speed}, render=lambda p=picture: p), None, ended=False)
        with Image.open(io.BytesIO(reel.gif())) as film:
            lasted = sum(frame.info["duration"] for frame in ImageSequence.Iterator(film))
        assert lasted == pytest.approx(1000 * 90 / speed, abs=10)


def test_one_array_of_all_lanes_shows_the_first_one() -> None:
    reel = Reel("e", seconds=60.0, episodes=1)
    pictures_of_lanes = np.stack([np.full((4, 8, 3), shade, np.uint8) for shade in (10, 200)])
    env = SimpleNamespace(num_envs=2, metadata={}, render=lambda: pictures_of_lanes)
    reel.take(env, None, ended=False)
    assert len(reel.pictures) == 1
    assert np.array(reel.pictures[0].convert("RGB")).max() <= 20


def test_an_episode_without_a_picture_is_the_last_one_that_is_played() -> None:
    reel = Reel("e", seconds=60.0, episodes=100)
    reel.take(env_of(None), None, ended=False)
    assert not reel.is_full
    reel.take(env_of(None), None, ended=True)
    assert reel.is_full


def test_a_picture_that_grows_is_shown_in_the_size_of_the_first_one() -> None:
    reel = Reel("e", seconds=60.0, episodes=1)
    for size in (100, 200):
        reel.take(env_of(np.full((size, 200, 3), size, np.uint8)), None, ended=False)
    assert {picture.size for picture in reel.pictures} == {(200, 100)}


def test_a_picture_that_never_changes_is_shown_as_long_as_a_file_can_say(tmp_path: Path) -> None:
    reel = Reel("e", seconds=3600.0, episodes=1)
    while not reel.is_full:
        reel.take(env_of(np.zeros((4, 8, 3), np.uint8), {"render_fps": 0.1}), None, ended=False)
    (tmp_path / "a.gif").write_bytes(reel.gif())
    assert pictures(tmp_path / "a.gif") == [(0, 655_350)]


def env_at(speed: float) -> Any:
    return SimpleNamespace(metadata={"render_fps": speed}, render=lambda: np.zeros((4, 8, 3), np.uint8))


@pytest.mark.parametrize(
    ("speed", "kept", "shown"), [(10, 10, 100), (30, 10, 30), (50, 5, 40), (100, 3, 40), (1000, 1, 30)]
)
def test_fast_environments_leave_pictures_out_and_keep_their_speed(speed: float, kept: int, shown: int) -> None:
    reel = Reel("e", seconds=60.0, episodes=2)
    for _ in range(10):
        reel.take(env_at(speed), None, ended=False)
    assert len(reel.pictures) == kept
    assert {10 * round(100 * seconds) for seconds in reel._seconds} == {shown}
    # The last one of an episode is kept, however fast.
    reel.take(env_at(speed), None, ended=True)
    assert len(reel.pictures) == kept + 1
    # Four pixels are not seen: they are enlarged.
    assert reel.pictures[0].size == (160, 80)
