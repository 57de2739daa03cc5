"""An import contract: some modules may be imported by one package alone. It sees compiled modules, of which the graph knows only the import line.

It does not look at indirect imports: whoever imports the allowed package is welcome to.
"""

import re

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyInContract(Contract):
    """Modules that one package alone may import.

    Options:
        targets: modules, with or without source (``penstock.memory._native``, ``ray``).
        allowed: the package that may import them; without it, each target's own parent package.
    """

    type_name = "only_in"

    targets = fields.ListField(subfield=fields.StringField())
    allowed = fields.StringField(required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Every import line that names a target, in a module outside the package that may."""
        found = [
            (detail["importer"], detail["line_number"], target)
            for target in self.targets
            for imported in (target, target.rpartition(".")[0])
            if imported in graph.modules
            for importer in graph.find_modules_that_directly_import(imported)
            for detail in graph.get_import_details(importer=importer, imported=imported)
            if not self._may(importer, target) and (imported == target or names(detail["line_contents"], target))
        ]
        return ContractCheck(kept=not found, metadata={"found": sorted(set(found))})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line an import."""
        for importer, line, target in check.metadata["found"]:
            output.print_error(f"{importer} (l.{line}) may not import {target}", bold=False)

    def _may(self, importer: str, target: str) -> bool:
        room = self.allowed or target.rpartition(".")[0]
        return importer == room or importer.startswith(f"{room}.")


def names(line: str, target: str) -> bool:
    """True if an import line names the module ``target``."""
    parent, _, leaf = target.rpartition(".")
    whole = re.search(rf"\b{re.escape(target)}\b", line)
    return bool(whole or (f"from {parent} import" in line and re.search(rf"\b{leaf}\b", line)))
