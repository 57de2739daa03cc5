"""Numbers that no benchmark can work with are refused in one line, before anything is measured."""

import importlib
import sys

import pytest

WITH_ROUNDS = [
    *("act", "atari", "auto_choice", "board", "doorbell", "end_to_end", "env_step", "first_steps", "non_blocking"),
    *("off_policy", "publish", "recurrent", "replay", "slots", "start", "throughput", "update"),
]


def refused(module: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The last line of ``python -m benchmarks.MODULE WORDS``, which must end with the status of a wrong usage."""
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{module}").main()
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("module", WITH_ROUNDS)
def test_no_rounds(module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(module, ["--rounds", "0"], monkeypatch, capsys)
    assert line.endswith("error: argument --rounds: 0 is no whole number from 1 on")


@pytest.mark.parametrize(
    ("module", "words", "why"),
    [
        ("off_policy", ["--updates", "-3"], "--updates: -3 is no whole number from 1 on"),
        ("board", ["--sizes", "100", "many"], "--sizes: many is no whole number from 1 on"),
        ("scaling", ["--batches", "1.5"], "--batches: 1.5 is no whole number from 1 on"),
        ("throughput", ["--peer_seconds", "nan"], "--peer_seconds: nan is no number above 0"),
        ("soak.on_policy", ["--minutes", "0"], "--minutes: 0 is no number above 0"),
    ],
)
def test_other_numbers(
    module: str, words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(module, words, monkeypatch, capsys).endswith(f"error: argument {why}")
