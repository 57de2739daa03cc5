"""A thread beside the launcher's own work runs as long as its block."""

import threading

import pytest

from penstock.cluster.launcher_thread import LauncherThread


class Noting(LauncherThread):
    """Notes what becomes of it. If it is ``deaf``, it does not end when it is told to."""

    def __init__(self, *, deaf: bool) -> None:
        super().__init__("noting", 0.01 if deaf else None)
        self.noted: list[str] = []
        self.heard = threading.Event()
        self._deaf = deaf

    def _run(self) -> None:
        self.noted.append("runs")
        self._over.wait(60)
        self.noted.append("is told to end")
        if self._deaf:
            self.heard.wait(60)
        self.noted.append("ends")

    def _ended(self, error: BaseException | None) -> None:
        self.noted.append(f"after it: {error}")


def test_it_runs_within_its_block_and_learns_how_that_ended() -> None:
    thread = Noting(deaf=False)
    with thread:
        pass
    assert thread.noted == ["runs", "is told to end", "ends", "after it: None"]
    with pytest.raises(OSError, match="full"), Noting(deaf=False) as thread:
        raise OSError("full")
    assert thread.noted[-2:] == ["ends", "after it: full"]


def test_a_thread_that_does_not_end_is_waited_for_no_longer_than_it_says() -> None:
    with Noting(deaf=True) as thread:
        pass
    assert "after it: None" in thread.noted
    assert "ends" not in thread.noted
    thread.heard.set()
