"""Every example runs from beginning to end as a user would start it, for a few steps."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path):
    """Runs an example in a folder of its own and gives what it printed."""

    def start(name: str, timesteps: int) -> str:
        command = [sys.executable, ROOT / "examples" / f"{name}.py"]
        arguments = ["--timesteps", str(timesteps), "--log_dir", str(tmp_path / "logs")]
        ended = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["logs"]
        folders = list((tmp_path / "logs").iterdir())
        assert folders
        assert all((folder / "README.md").is_file() for folder in folders)
        return ended.stdout

    return start


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


def test_own_environment(run):
    printed = run("own_environment", 3_840)
    assert number(r"mean return (-[\d.]+); everything is in", printed) < 0
    assert re.search(r"heater in a cold room: [012], in a hot room: [012]$", printed, re.MULTILINE)


def test_dict_observations(run):
    printed = run("dict_observations", 4_096)
    assert 0 <= number(r"right answers of 16: ([\d.]+)", printed) <= 16
    assert re.search(r"positive\? (yes|no)$", printed, re.MULTILINE)


def test_train_from_python(run):
    printed = run("train_from_python", 2_048)
    assert number(r"mean return ([\d.]+) after 2048 steps", printed) >= 8
    assert 8 <= number(r"one greedy episode: (\d+)", printed) <= 500
    assert "to go on: penstock resume" in printed


def test_older_gym_api(run):
    printed = run("older_gym_api", 2_048)
    assert 5 <= number(r"the ball stays on the beam for (\d+) of 200 steps", printed) <= 200


def test_own_reward(run):
    printed = run("own_reward", 2_048)
    for name in ("centred", "Calm"):
        assert 8 <= number(rf"{name}: the pole stays up for (\d+) of 500 steps", printed) <= 500
    assert "shaped return" in printed


def test_vector_environment(run):
    printed = run("vector_environment", 3_200)
    assert number(r"mean return (-[\d.]+)", printed) < 0
    assert "from (0.5, 0.5) the policy pushes by [" in printed


def test_every_example_is_tested():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} <= tested
