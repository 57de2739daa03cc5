"""Makes ``tests.environments`` importable in the processes that a test starts, as it is in the tests' own."""

import os
from pathlib import Path

ROOT = str(Path(__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
