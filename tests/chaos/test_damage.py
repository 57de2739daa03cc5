"""Another program writes into the memory of a run. The damaged parameters are not used, and one line reports it."""

import inspect
import os
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.cli import main
from penstock.errors import DamagedError
from penstock.memory.board import Board
from penstock.policies.acting import LocalPolicy
from penstock.program.graph import Board as BoardEdge
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.wiring.edges import Wiring
from tests.environments import TargetEnv

SETTINGS = {"num_steps": 16, "epochs": 1, "mini_batch_size": 32, "num_envs": 4, "num_workers": 2, "eval_episodes": 2}
TIMESTEPS = 16 * 4 * 20
SAYS = "board policy, version 5: it does not hold what was published, so something else wrote into its shared memory"
REFRESH = LocalPolicy.refresh


class Intruder(TargetEnv):
    """An environment whose library writes once into version 5 of the parameters, right before they are read."""

    def __init__(self) -> None:
        wiring = wiring_of_this_process()
        if wiring is not None and os.environ.get("PENSTOCK_GROUP", "env.0") == "env.0":

            def refresh(policy: LocalPolicy) -> None:
                mark = Path(os.environ["MARK"])
                if wiring.board("policy").version() == 5 and not mark.exists():
                    mark.touch()
                    flip(wiring, "policy")
                REFRESH(policy)

            LocalPolicy.refresh = refresh  # type: ignore[method-assign]


def wiring_of_this_process() -> Wiring | None:
    """The wiring of the caller that is about to open this process's nodes."""
    frame = inspect.currentframe()
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, Wiring):
                return value
        frame = frame.f_back
    return None


def flip(wiring: Wiring, name: str) -> None:
    """Flip a bit of the first array in each buffer of a board."""
    edge = wiring.edge(name)
    assert isinstance(edge, BoardEdge)
    words = wiring.bytes_of(name)[: Board.required(edge.arrays)].view(np.uint64)
    line = 8
    for buffer in np.split(words[line:], 3):
        buffer[line] ^= np.uint64(1 << 20)


@pytest.fixture(autouse=True)
def mark(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    monkeypatch.setattr(LocalPolicy, "refresh", REFRESH)  # as it is to be afterwards
    return tmp_path / "mark"


def test_a_run_in_one_process_ends_with_board_and_version(tmp_path, mark: Path) -> None:
    settings = {
        **SETTINGS,
        "env": Intruder,
        "runtime": "inline",
        "timesteps": TIMESTEPS,
        "log_dir": str(tmp_path / "runs"),
    }
    with pytest.raises(DamagedError) as caught:
        penstock.train(settings, quiet=True)
    assert str(caught.value) == SAYS
    assert mark.exists()


def test_a_run_of_processes_ends_with_one_line_and_goes_on_from_its_last_commit(tmp_path, capsys, started) -> None:
    flags = [f"--{name}={value}" for name, value in SETTINGS.items()]
    runs = tmp_path / "runs"
    assert (
        main(["train", "--env", f"{__name__}:Intruder", f"--timesteps={TIMESTEPS}", f"--log_dir={runs}", *flags]) == 1
    )
    first, second = capsys.readouterr().err.splitlines()
    assert first in {f"penstock: error: node env.{worker}: {SAYS}" for worker in (0, 1)}
    (folder,) = runs.iterdir()
    assert second == f"penstock: its last checkpoint, update 5, is good; to continue: penstock resume {folder}"
    assert started() == []
    penstock.resume(folder, quiet=True)
    assert int(load_checkpoint(find_checkpoint(folder)).arrays["update"]) == 20
