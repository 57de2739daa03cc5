"""Makes a peer's own virtual environment under `build/peers/`; does nothing if it is there already."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build/peers"


def requirements_of(peer: str) -> Path:
    """The versions in a peer's environment."""
    return HERE / f"requirements-{peer}.txt"


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment. The environment is made if it does not exist.

    Args:
        peer: a name for which `requirements_of` exists.
    """
    requirements = requirements_of(peer)
    folder = BUILD / peer
    python = folder / "bin/python"
    stamp = folder / ".installed"
    if not stamp.exists() or stamp.stat().st_mtime < requirements.stat().st_mtime:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
        stamp.touch()
    return python


if __name__ == "__main__":
    print(python_of(sys.argv[1]))
