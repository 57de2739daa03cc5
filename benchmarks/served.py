"""A server for a benchmark: ``penstock serve`` in a process of its own, and what it says of itself. Measures nothing.

Its PPO policy of Pendulum-v1 has hardly trained: its parameters do not change the time.
"""

import contextlib
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import penstock

__all__ = ["Served", "serving", "trained"]


class Served(NamedTuple):
    """Where a server listens."""

    url: str
    tcp_port: int

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 if it has not been counted yet."""
        with urllib.request.urlopen(f"{self.url}/metrics") as page:
            found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page.read().decode(), re.MULTILINE)
        return sum(map(float, found))

    def processor_seconds(self) -> float:
        """Processor time of the server so far, without its workers."""
        return self.metric("process_cpu_seconds_total")


def trained(folder: Path, hidden_sizes: Sequence[int] = (64, 64)) -> Path:
    """A run folder with such a policy."""
    settings = {
        "env": "Pendulum-v1",
        "timesteps": 2048,
        "eval_episodes": 1,
        "hidden_sizes": list(hidden_sizes),
        "log_dir": str(folder),
    }
    return penstock.train(settings, quiet=True).run_folder


@contextlib.contextmanager
def serving(run: Path, *flags: str) -> Iterator[Served]:
    """Serve a run, with these flags, for as long as the body runs."""
    command = [sys.executable, "-m", "penstock", "serve", str(run), "--port", "0", "--tcp_port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            http, tcp = (int(port) for port in re.findall(r":(\d+)", line)[:2])
            yield Served(f"http://127.0.0.1:{http}", tcp)
        finally:
            process.terminate()
