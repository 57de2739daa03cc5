"""A cluster that asks for a token takes a run that has it, and no other."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray

from tests.ports import free_port

pytestmark = [pytest.mark.nightly, pytest.mark.alone]  # Ray starts as it does for a user, and starts slowly.

TOKEN = "a-token-of-this-test-and-of-nothing-else"
TRAIN = ["train", "--env", "CartPole-v1", "--num_steps", "32", "--timesteps", "512", "--eval_episodes", "0"]


def environment(token: str | None) -> dict[str, str]:
    """The environment variables of a command that has this token."""
    mode = {"RAY_AUTH_MODE": "disabled"} if token is None else {"RAY_AUTH_MODE": "token"}
    own = {"RAY_AUTH_TOKEN": token} if token else {}
    # The user's token lies at home.
    return {**os.environ, "HOME": tempfile.gettempdir(), **mode, **own}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A head that asks for the token."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray-") as place:
        words = ["--head", "--port", str(port), "--num-cpus", "2", "--include-dashboard", "false", "--temp-dir", place]
        start = [str(Path(sys.executable).with_name("ray")), "start", *words, "--block"]
        head = psutil.Popen(start, env=environment(TOKEN), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"{ray.util.get_node_ip_address()}:{port}"
        finally:
            family = [head, *head.children(recursive=True)]
            head.terminate()
            _, left = psutil.wait_procs(family, timeout=20)
            for process in left:
                process.kill()


def trained(address: str, token: str | None, logs: Path) -> subprocess.CompletedProcess[str]:
    words = [*TRAIN, "--distributed", "True", "--address", address, "--log_dir", str(logs)]
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(command, env=environment(token), capture_output=True, text=True, timeout=120, check=False)


def test_a_run_with_the_token_trains_and_one_without_it_is_one_line(address: str, tmp_path: Path) -> None:
    # The head has had no time to start: the first tries may find nothing.
    for _ in range(10):
        done = trained(address, TOKEN, tmp_path)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    for token, says in (
        (None, "asks for a token: set RAY_AUTH_MODE=token"),
        ("another-token", "it may ask for another token than this machine has"),
        ("", "this machine has no token for the Ray cluster at --address"),
    ):
        refused = trained(address, token, tmp_path / "refused")
        assert refused.returncode == 2
        # Ray has noted its own tries above this line.
        line = refused.stderr.splitlines()[-1]
        assert line.startswith("penstock: error: ")
        assert says in line
    assert not (tmp_path / "refused").exists()
