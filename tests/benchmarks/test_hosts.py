"""What hosts say of a sitting that was killed. Namespaces are made by the benchmarks only."""

from pathlib import Path

import pytest

from benchmarks import hosts


def test_what_a_killed_sitting_has_left_is_named_with_what_removes_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hosts, "DEVICES", tmp_path)
    (tmp_path / hosts.BRIDGE).mkdir()
    with pytest.raises(RuntimeError, match=r"another sitting runs\. If it was killed: .*; ip link del penstockbr"):
        hosts.Hosts([], tmp_path).__enter__()
