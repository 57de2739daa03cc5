"""Each import contract is broken once on purpose, by one import in a copy of the package. The check must name it."""

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LAYERS = "Imports point down only"
TORCH = "No torch where processes must start fast"
NATIVE = "Native code only through its package"
RAY = "Ray only in cluster and tune"
BACKENDS = "Backends of the update are independent"
SERVER = "Imports within the server point down only"
PROTOCOLS = "Protocols of the server are independent"
TRANSPORTS = "Transports of one protocol are independent"
VARIANTS = ", save a variant of the topology it varies"
ALGORITHMS = "Algorithms are independent, save a variant of the algorithm it varies"

VIOLATIONS = [
    # what it shows, contract, {file: source}
    ("a lower package imports a higher one", LAYERS, {"types/causes.py": "import penstock.config"}),
    ("inside a function", LAYERS, {"errors.py": "def late() -> None:\n    import penstock.types"}),
    (
        "through a third file",
        LAYERS,
        {"memory/planted.py": "import penstock.kernels.planted", "kernels/planted.py": "import penstock.nodes"},
    ),
    ("packages of one layer", LAYERS, {"runtime/planted.py": "import penstock.topologies"}),
    ("a package that no layer names", LAYERS, {"drawer/__init__.py": ""}),
    *[
        (
            f"two files of {package}",
            f"Files of {package} are independent{VARIANTS * (package == 'topologies')}",
            {f"{package}/planted.py": f"import penstock.{package}.other_planted", f"{package}/other_planted.py": ""},
        )
        for package in ("nodes", "topologies", "inference", "gradient_exchange", "runtime")
    ],
    ("two backends of the update", BACKENDS, {"updates/eager/planted.py": "import penstock.updates.fused"}),
    (
        "two protocols",
        PROTOCOLS,
        {"serving/server/protocols/planted.py": "import penstock.serving.server.protocols.gamecore.http"},
    ),
    (
        "two transports of a protocol",
        TRANSPORTS,
        {"serving/server/protocols/gamecore/http.py": "import penstock.serving.server.protocols.gamecore.tcp"},
    ),
    (
        "a lower part of the server imports a higher one",
        SERVER,
        {"serving/server/admission/planted.py": "import penstock.serving.server.endpoints.endpoint"},
    ),
    ("a part of the server that no layer names", SERVER, {"serving/server/drawer/__init__.py": ""}),
    (
        "two algorithms",
        ALGORITHMS,
        {
            "algorithms/planted/__init__.py": "",
            "algorithms/planted/spec.py": "import penstock.algorithms.other_planted.spec",
            "algorithms/other_planted/__init__.py": "",
            "algorithms/other_planted/spec.py": "",
        },
    ),
    *[
        (f"torch in {file}", TORCH, {file: "def late() -> None:\n    import torch"})
        for file in (
            "nodes/planted.py",
            "envs/planted.py",
            "gradient_exchange/planted.py",
            "algorithms/ppo/spec.py",
            "inference/native.py",
            "serving/server/planted.py",
            "types/causes.py",
        )
    ],
    (
        "torch through a third file",
        TORCH,
        {"saved_runs/planted.py": "import penstock.kernels.planted", "kernels/planted.py": "import torch.nn"},
    ),
    ("memory's native code from nodes", NATIVE, {"nodes/planted.py": "from penstock.memory import _native"}),
    ("kernels' native code from nodes", NATIVE, {"nodes/planted.py": "import penstock.kernels._native as native"}),
    ("one name of it", NATIVE, {"envs/planted.py": "from penstock.memory._native import Slots"}),
    ("ray in a node", RAY, {"nodes/planted.py": "def late() -> None:\n    import ray"}),
    ("ray beside its package", RAY, {"runtime/planted.py": "from ray import remote"}),
]

IN_SHORT = {"a lower package imports a higher one", "two algorithms", "torch in types/causes.py"}
"""One violation of each type of contract. The others, a second each and several for native code, are nightly."""


def contracts(root: Path) -> dict[str, str]:
    """Name of each contract -> its identifier."""
    parser = configparser.ConfigParser()
    parser.read(root / ".importlinter")
    prefix = "importlinter:contract:"
    return {parser[key]["name"]: key.removeprefix(prefix) for key in parser.sections() if key.startswith(prefix)}


# The finder of an editable install comes before all paths. Without it the copy is found.
PROGRAM = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]
from importlinter.cli import lint_imports_command
lint_imports_command(sys.argv[1:])
"""


def lint(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "--no-logo", "--no-cache", *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def plant(tree: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        path = tree / "src/penstock" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if path.exists() else ""
        path.write_text(f"{before}\n{source}\n")
        for folder in path.parents:
            if folder == tree / "src/penstock":
                break
            (folder / "__init__.py").touch()


@pytest.mark.nightly  # ``make check`` does the same.
def test_every_contract_is_kept(root: Path) -> None:
    result = lint(root)
    assert result.returncode == 0, result.stdout + result.stderr
    assert set(re.findall(r"^(.*) KEPT", result.stdout, re.MULTILINE)) == set(contracts(root))


@pytest.mark.parametrize(
    ("contract", "files"),
    [pytest.param(*row[1:], id=row[0], marks=[] if row[0] in IN_SHORT else pytest.mark.nightly) for row in VIOLATIONS],
)
def test_a_violation_breaks_that_contract(tree: Path, contract: str, files: dict[str, str]) -> None:
    plant(tree, files)
    result = lint(tree, "--contract", contracts(tree)[contract])
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout, result.stdout + result.stderr


def test_every_contract_has_been_broken(root: Path) -> None:
    assert {contract for _, contract, _ in VIOLATIONS} == set(contracts(root))


def test_a_variant_may_import_the_algorithm_it_varies(tree: Path) -> None:
    plant(tree, {"algorithms/a2c/planted.py": "import penstock.algorithms.ppo.spec"})
    assert lint(tree, "--contract", "algorithms").returncode == 0


def test_what_algorithms_share_knows_none_of_them(tree: Path) -> None:
    plant(tree, {"algorithms/planted/spec.py": "import penstock.algorithms.off_policy.spec"})
    assert lint(tree, "--contract", "algorithms").returncode == 0
    plant(tree, {"algorithms/off_policy/spec.py": "import penstock.algorithms.sac.spec"})
    assert lint(tree, "--contract", "algorithms").returncode == 1


@pytest.mark.nightly  # Four seconds. Shorter: each package with native code imports it, and keeps every contract above.
def test_native_code_is_free_inside_its_package(tree: Path) -> None:
    plant(tree, {"memory/planted.py": "from penstock.memory import _native"})
    assert lint(tree, "--contract", "native").returncode == 0


def test_every_package_says_whether_it_may_import_torch(root: Path) -> None:
    parser = configparser.ConfigParser()
    parser.read(root / ".importlinter")
    free = set(re.findall(r"penstock\.(\w+)$", parser["importlinter:contract:torch"]["source_modules"], re.MULTILINE))
    may = {"algorithms", "cuda_graph", "inference", "ops", "torch_networks", "updates"}
    source = root / "src/penstock"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    files = {path.stem for path in source.glob("*.py") if not path.stem.startswith("__")}
    assert (packages | files) - may == free
