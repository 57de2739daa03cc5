"""Each gate of `make check` that is no import contract fails once, on purpose, with the project's own settings."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNTYPED = '"""A file."""\n\n\ndef twice(value):\n    """Twice the value."""\n    return 2 * value\n'
PRINTING = '"""A file."""\n\n\ndef show(value: int) -> None:\n    """Show it."""\n    print(value)\n'
CROOKED = '"""A file."""\nVALUE = {  "a":1 }\n'


def run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def program(name: str) -> str:
    """A tool of the virtual environment that runs these tests."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"{name} is not installed"
    return found


@pytest.fixture
def settings(root: Path) -> str:
    return str(root / "pyproject.toml")


@pytest.mark.parametrize(("source", "rule"), [(UNTYPED, "ANN001"), (PRINTING, "T201"), ("import os\n", "F401")])
def test_ruff_check(tmp_path: Path, settings: str, source: str, rule: str) -> None:
    (tmp_path / "planted.py").write_text(source)
    result = run(
        program("ruff"), "check", "--config", settings, "--output-format", "concise", "planted.py", cwd=tmp_path
    )
    assert result.returncode == 1
    assert rule in result.stdout


def test_ruff_format(tmp_path: Path, settings: str) -> None:
    (tmp_path / "planted.py").write_text(CROOKED)
    result = run(program("ruff"), "format", "--check", "--config", settings, "planted.py", cwd=tmp_path)
    assert result.returncode == 1
    assert "planted.py" in result.stdout


def test_mypy(tmp_path: Path, settings: str) -> None:
    (tmp_path / "planted.py").write_text(UNTYPED)
    result = run(program("mypy"), "--config-file", settings, "--cache-dir", "cache", "planted.py", cwd=tmp_path)
    assert result.returncode == 1
    assert "[no-untyped-def]" in result.stdout


@pytest.fixture(scope="module")
def compile_commands(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """How the native tests are compiled, as CMake writes it; nothing is built."""
    build = tmp_path_factory.mktemp("native")
    options = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={program('ninja')}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    result = run(program("cmake"), "-S", str(root), "-B", str(build), "-DPENSTOCK_NATIVE_TESTS=ON", *options)
    assert result.returncode == 0, result.stderr
    commands: list[dict[str, str]] = json.loads((build / "compile_commands.json").read_text())
    return [command for command in commands if Path(command["file"]).is_relative_to(root / "native")]


def test_every_native_file_is_compiled_with_warnings_as_errors(compile_commands: list[dict[str, str]]) -> None:
    assert compile_commands
    for command in compile_commands:
        assert {"-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"} <= set(shlex.split(command["command"]))


@pytest.mark.parametrize(
    ("warning", "body"),
    [("conversion", "short narrow(int x) { return x; }"), ("shadow", "int f(int x) { { int x = 1; return x; } }")],
)
def test_a_warning_is_an_error(tmp_path: Path, compile_commands: list[dict[str, str]], warning: str, body: str) -> None:
    (tmp_path / "planted.cpp").write_text(body)
    compiler, *words = shlex.split(compile_commands[0]["command"])
    flags = [word for word in words if word.startswith(("-W", "-std", "-f"))]
    result = run(compiler, *flags, "-fsyntax-only", "planted.cpp", cwd=tmp_path)
    assert result.returncode != 0
    assert f"-Werror={warning}" in result.stderr
