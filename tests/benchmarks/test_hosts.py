"""What hosts say of a killed sitting, and how commands get onto them. Namespaces are made by the benchmarks only."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import hosts


def test_what_a_killed_sitting_has_left_is_named_with_what_removes_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hosts, "DEVICES", tmp_path)
    (tmp_path / hosts.BRIDGE).mkdir()
    with pytest.raises(RuntimeError, match=r"another sitting runs\. If it was killed: .*; ip link del penstockbr"):
        hosts.Hosts([], tmp_path).__enter__()


def test_commands_on_a_separate_host_see_the_processes_of_its_ray(monkeypatch) -> None:
    started: list[list[str]] = []
    forked = [[], [SimpleNamespace(pid=7)]]

    def start(words: list[str], **_: object) -> SimpleNamespace:
        started.append(words)
        return SimpleNamespace(pid=len(started))

    monkeypatch.setattr(hosts.subprocess, "Popen", start)
    monkeypatch.setattr(hosts, "_children", lambda pid: forked.pop(0))
    host = hosts.SeparateHost(1, {"CPU": 2}, None)
    host.begin()
    host.popen(["penstock", "train"])
    ray, command = started
    assert ray[:8] == ["ip", "netns", "exec", "penstock-1", "unshare", "--pid", "--fork", "--kill-child"]
    assert ray[10:14] == ["start", "--address", "10.219.0.1:6379", "--node-ip-address"]
    assert command == ["nsenter", "--target", "7", "--net", "--pid", "--mount", "--wd", "penstock", "train"]
    # It is lost, and comes back.
    forked.append([SimpleNamespace(pid=9)])
    host.begin()
    host.popen(["penstock", "train"])
    assert started[2][4] == "unshare"
    assert started[3][2] == "9"


def test_what_rays_head_leaves_is_removed_and_that_of_another_cluster_stays(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hosts, "NOTE_OF_HEAD", tmp_path / "note")
    monkeypatch.setattr(hosts, "_ip", lambda *_: "")
    ours, theirs = hosts.Hosts.address, "10.0.0.1:6379"
    for written, stays in ((ours, False), (theirs, True)):
        (tmp_path / "note").write_text(written)
        hosts.Hosts([], tmp_path).__exit__()
        assert (tmp_path / "note").exists() == stays
    (tmp_path / "note").unlink()
    hosts.Hosts([], tmp_path).__exit__()
