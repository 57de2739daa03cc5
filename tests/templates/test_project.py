"""``penstock new``: each template is a project that runs as it is written."""

import os
import random
import re
import shlex
import subprocess
import sys
import typing
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.cli.commands import COMMANDS
from penstock.cli.entry import main
from penstock.clients import GameClient
from penstock.config import commands as options
from penstock.config.flags import options_from_arguments, resume_from_arguments, train_from_arguments
from penstock.config.sources import with_changes
from penstock.envs.games import game_spaces
from penstock.envs.sources import open_source
from penstock.errors import ConfigError
from penstock.kernels.actions import environment_array
from penstock.saved_runs.demonstrations import KeptEpisodes, find_demonstrations
from penstock.serving.observations import FieldReader
from penstock.templates import write_project
from penstock.templates.project import TEMPLATES
from penstock.types import EnvRecipe
from tests.ports import free_port

NAMES = typing.get_args(typing.get_type_hints(options.NewOptions)["template"])
LIMIT_S = 300.0
"""Seconds after which a process of a test hangs."""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes a project and enters it: its modules are found, as where a user types commands."""

    def write(template: str) -> Path:
        place = write_project(tmp_path / "project", template)
        monkeypatch.chdir(place)
        monkeypatch.syspath_prepend(place)
        return place

    before = set(sys.modules)
    yield write
    # The next test writes modules of the same names.
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def commands_of(place: Path) -> list[str]:
    """The commands of a project's README, without their comments."""
    lines = (place / "README.md").read_text().splitlines()
    return [line.partition(" # ")[0].strip() for line in lines if line.startswith("    ")]


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_each_choice_of_the_command_is_a_template():
    assert {path.parent.name for path in TEMPLATES.glob("*/README.md")} == set(NAMES)


@pytest.mark.parametrize("template", NAMES)
def test_a_project_holds_the_files_of_its_template_and_its_page_names_them(tmp_path, template):
    place = write_project(tmp_path / "deep" / "down", template)
    written = files_in(place)
    assert written == files_in(TEMPLATES / template)
    page = (Path(__file__).parents[2] / "docs/new-project.md").read_text()
    (of_page,) = re.findall(rf"^\| `{template}` \| (.+?) \|", page, re.MULTILINE)
    assert sorted(re.findall(r"`(.+?)`", of_page)) == sorted(written.keys() - {"README.md"})
    named = re.findall(r"^\| `(.+?)` \|", (place / "README.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(written.keys() - {"README.md"})


@pytest.mark.parametrize("template", ["rl", "imitation"])
def test_penstock_plays_its_environment(project, template):
    config = penstock.from_toml(project(template) / "train.toml")
    source = open_source(config.run.env, False, 2)
    obs = source.reset([1, 2])
    result = source.step(environment_array(source.spaces.action, 2), lambda lane: lane)
    source.close()
    assert obs["obs"].shape == result.obs["obs"].shape == (2, 2)
    assert np.isfinite(result.reward).all()


def test_the_recordings_are_demonstrations(project):
    place = project("imitation")
    record = import_module("record")
    for number in (1, 2):
        record.write(place / "demonstrations", number, *record.played(seed=number))
    config = penstock.from_toml(place / "train.toml")
    source = open_source(config.run.env, False, 1)
    (folder,) = config.run.demonstrations
    found = find_demonstrations(place / folder, source.spaces, None)
    source.close()
    assert isinstance(found, KeptEpisodes)
    assert (found.newest, found.agent) == (2, "")


def test_its_game_sends_what_its_agent_reads(project):
    config = penstock.from_toml(project("game") / "train.toml")
    spaces, _ = game_spaces(EnvRecipe(config.run.env, {}, ()), (), masks=False)
    agent, game = import_module("catch_agent").CatchAgent(), import_module("catch_game")
    reader = FieldReader(spaces)
    field = game.Field(random.Random(0))
    rewards = []
    while not field.is_over:
        told = agent.decode(field.body(0.0))
        (seen,) = reader.read(told.obs)[0]["obs"]
        assert not told.terminated
        # Where the ball is, in the paddle's eyes.
        assert seen[3] == np.float32(seen[0] - seen[2])
        rewards.append(field.move(agent.encode(1 + int(np.sign(seen[3])))[0]))
    assert agent.decode(field.body(1.0)).terminated
    assert [reward for reward in rewards if reward] == [1.0] * game.BALLS


def test_a_folder_that_is_taken_is_refused_in_one_line(tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.mkdir()
    assert main(["new", str(taken)]) == 0
    (tmp_path / "file").touch()
    capsys.readouterr()
    for place in (taken, tmp_path / "file"):
        assert main(["new", str(place), "--template", "game"]) == 2
        assert capsys.readouterr().err == (
            f"penstock: error: {place} is there already and is not empty; give a new folder\n"
        )
    assert files_in(taken) == files_in(TEMPLATES / "rl")
    with pytest.raises(ConfigError, match=r"cannot write .*file/project: Not a directory"):
        write_project(tmp_path / "file" / "project", "rl")


def test_the_command_says_what_to_type_next(tmp_path, capsys):
    place = tmp_path / "my project"
    assert main(["new", str(place), "--template", "game"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"project:    {place}",
        f"begin:      cd '{place}'; README.md says what to type",
    ]
    assert main(["new", str(tmp_path / "other"), "--template", "robot"]) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in NAMES)
    assert main(["new", "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: penstock new FOLDER ")
    assert all(f"{name}:" in said for name in NAMES)


@pytest.mark.parametrize("template", NAMES)
def test_penstock_knows_every_flag_of_its_readme(project, template):
    typed = [line.removesuffix("&").split() for line in commands_of(project(template)) if line.startswith("penstock ")]
    verbs = [words[1] for words in typed]
    assert verbs[0] == "train"
    assert verbs[-2:] == ["export", "serve"]
    for _, verb, *words in typed:
        if verb == "train":
            train_from_arguments(words)
        elif verb == "resume":
            with_changes(penstock.from_toml(Path("train.toml")), resume_from_arguments(words)[1])
        else:
            options_from_arguments(getattr(options, COMMANDS[verb].options), words)


@pytest.mark.parametrize("template", NAMES)
def test_its_own_tests_pass(tmp_path, template):
    place = write_project(tmp_path / "project", template)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout


class Terminal:
    """Types the commands of a project, as a shell does."""

    def __init__(self, place: Path, said: Path) -> None:
        self._place = place
        self._said = said.open("a")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path}
        self.behind: list[subprocess.Popen] = []

    def type(self, line: str) -> None:
        if line == "kill %%":
            server = self.behind.pop()
            server.terminate()
            server.wait(LIMIT_S)
        elif line.endswith("&"):
            self.behind.append(self._begun(line.removesuffix("&")))
        else:
            assert self._begun(line).wait(LIMIT_S) == 0, line

    def close(self) -> None:
        for process in self.behind:
            process.kill()
            process.wait()
        self._said.close()

    def _begun(self, line: str) -> subprocess.Popen:
        places = {"cwd": self._place, "env": self._environment}
        return subprocess.Popen(shlex.split(line), stdout=self._said, stderr=self._said, **places)


# A minute each. Shorter: the tests above; ``tests/examples`` and ``tests/games`` do each step.
@pytest.mark.nightly
@pytest.mark.parametrize("template", NAMES)
def test_the_commands_of_its_readme_work(tmp_path, template):
    place = write_project(tmp_path / "project", template)
    port, written = str(free_port()), "8001" if template == "game" else "8000"
    for name, content in files_in(place).items():
        (place / name).write_text(content.decode().replace(written, port))
    *lines, last = [line for line in commands_of(place) if not line.startswith("curl ")]
    terminal = Terminal(place, tmp_path / "said")
    try:
        for line in [*lines, f"{last} &"]:
            terminal.type(line)
        if template == "game":
            assert terminal.behind[0].wait(LIMIT_S) == 0
            terminal.type(f"python catch_game.py tcp://localhost:{port} --games 1 --episodes 1")
        else:
            with GameClient(f"http://localhost:{port}", "first", patience=120.0) as client:
                client.start()
                client.tick([0.1, -0.05])
                client.stop()
    finally:
        terminal.close()
    said = (tmp_path / "said").read_text()
    returns = [float(found) for found in re.findall(r"return (-?[\d.]+) ± ", said)]
    if template == "rl":
        # A valve that is always half open reaches less than 60 on average.
        assert returns[-1] > 75
    elif template == "imitation":
        (of_operator,) = re.findall(r"the operator's mean return is (-[\d.]+)", said)
        assert returns[-1] > 2.0 * float(of_operator)
    else:
        caught = re.findall(r"of 5 balls, ([\d.]+) were caught", said)
        assert float(caught[1]) > 2.0
    assert (place / "policy" / "policy.onnx").is_file()
