"""Homes in paths."""

from pathlib import Path

from penstock.paths import expanded


def test_a_tilde_is_a_home_and_what_is_none_stays(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expanded("~/runs") == Path("/home/me/runs")
    assert expanded(Path("~")) == Path("/home/me")
    assert expanded("~nobody-has-this-name/runs") == Path("~nobody-has-this-name/runs")
    assert expanded("runs/~") == Path("runs/~")
