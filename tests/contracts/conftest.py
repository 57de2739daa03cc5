"""A copy of the package's sources, in which a contract can be broken."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The Python sources, the contracts and their own contract type; nothing else."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    (tmp_path / "tests/contracts").mkdir(parents=True)
    shutil.copy(ROOT / "tests/contracts/only_in.py", tmp_path / "tests/contracts")
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path
