"""PPO reaches its threshold on three hosts in network namespaces, 20 ms and 1 % of lost frames apart."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.cluster_learning import CASES, run


def refusal() -> str:
    """Why this machine makes no hosts of its own; empty if it does."""
    if os.geteuid() != 0 or shutil.which("ip") is None or not Path("/dev/net/tun").exists():
        return "needs root, iproute2 and tap devices; the same path runs near in the other tests of this folder"
    made = subprocess.run(["ip", "netns", "add", "penstock-try"], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"namespaces are not permitted here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", "penstock-try"], check=True)
    return ""


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_ppo_learns_on_hosts_that_are_far_apart(tmp_path: Path) -> None:
    if why := refusal():
        pytest.skip(why)
    found = run(CASES["ppo"], "far", tmp_path)
    assert found["return"] >= CASES["ppo"].threshold
    assert (found["unbalanced"], found["left"]) == (0, 0)
