"""An import contract: only some packages may import some modules.

A compiled module is no node of the import graph, so the contract reads the sources. It does not look at indirect
imports: any module may import the package that is allowed.
"""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyInContract(Contract):
    """Modules that only some packages may import.

    Options:
        targets: modules, with or without source (``penstock.memory._native``, ``ray``).
        allowed: the packages that may import them; without it, each target's own parent package.
    """

    type_name = "only_in"

    targets = fields.ListField(subfield=fields.StringField())
    allowed = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Every import of a target in a module outside the allowed packages."""
        found = [
            (importer, line, target)
            for root in self.session_options["root_packages"]
            for importer, line, imported in imports(root)
            for target in self.targets
            if within(imported, target)
            and not any(within(importer, package) for package in self.allowed or [target.rpartition(".")[0]])
        ]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line for each import."""
        for importer, line, target in check.metadata["found"]:
            output.print_error(f"{importer} (l.{line}) may not import {target}", bold=False)


def within(module: str, package: str) -> bool:
    """True if ``module`` is ``package`` or inside it."""
    return module == package or module.startswith(f"{package}.")


def imports(root: str) -> Iterator[tuple[str, int, str]]:
    """Every import below ``root``: the importing module, its line, and the dotted name that is imported."""
    spec = importlib.util.find_spec(root)
    for folder in spec.submodule_search_locations if spec else ():
        for path in sorted(Path(folder).rglob("*.py")):
            parts = (root, *path.relative_to(folder).with_suffix("").parts)
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            package = parts[:-1]
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from ((module, node.lineno, alias.name) for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    start = package[: len(package) - node.level + 1] if node.level else ()
                    base = ".".join((*start, *filter(None, [node.module])))
                    yield from ((module, node.lineno, f"{base}.{alias.name}") for alias in node.names)
