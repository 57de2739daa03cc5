"""Keeps the code of a launch, ``RUN/code/``: the user's own modules that the run names, and changes since their commit.

Imports no module. Fails no run: what cannot be kept is noted. Modules that are installed are told by their versions.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.module_files import is_installed, place_of
from penstock.registry import search_working_directory
from penstock.saved_runs.durable import PARTIAL, remove_folder, sweep
from penstock.saved_runs.repository import RepositoryState, repository_of, state_of
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["code_text", "keep_code"]

COPY_LIMIT = 1 << 20
"""Bytes of all copied files together."""
FILES_LIMIT = 200
"""Files that are copied."""
_ENTRIES_LIMIT = 5000
"""Files and folders of a package that are looked at: it may hold data."""
_CHANGED = {None: ", changes unknown", False: "", True: " with changes"}
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_SOURCE = frozenset({".py", ""})
"""Endings of files that are copied. A script may have none."""


def keep_code(folder: RunFolder, modules: Sequence[str]) -> dict[str, Any] | None:
    """Copy the user's own modules, and the changes of their repositories, into the run folder.

    Equal code is kept once: the name of its folder is a hash of it.

    Args:
        folder: of the run.
        modules: those that the run names, such as ``my_package.my_module``. Of a package all its modules are copied.

    Returns:
        What a line of ``launches.jsonl`` says of it; ``None`` if no module is the user's own:

        - ``folder``: of the copies, below the run folder; ``None`` if there are none.
        - ``files``: the copied modules.
        - ``repositories``: the git repositories that they are in. Of each its ``path``, its ``commit``, whether tracked
          files were ``changed`` since, and the file with the ``diff``. What is not known is ``None``.
        - ``notes``: what is missing, and why.
    """
    search_working_directory()
    places = dict(_own_places(modules))
    if not places:
        return None
    kept = _Kept()
    for name, place in places.items():
        kept.take_module(name, place)
    found = (repository_of(place) for place in places.values())
    states = [state_of(path) for path in dict.fromkeys(path for path in found if path is not None)]
    names = [kept.take_diff(state) for state in states]
    written = kept.write(folder)
    return {
        "folder": written,
        "files": sorted(kept.modules),
        "repositories": [
            {
                "path": str(state.path),
                "commit": state.commit,
                "changed": None if state.diff is None else bool(state.diff),
                "diff": None if written is None else name,
            }
            for state, name in zip(states, names, strict=True)
        ],
        "notes": [*kept.notes, *(note for state in states for note in state.notes)],
    }


def code_text(code: Mapping[str, Any] | None) -> str:
    """The commits of a launch's code for a sentence: ``commit 0123456789ab with changes``; empty if none is known.

    Args:
        code: as `keep_code` returned it.
    """
    found = [one for one in (code or {}).get("repositories", ()) if one["commit"]]
    texts = (f"commit {one['commit'][:12]}{_CHANGED[one['changed']]}" for one in found)
    return ", ".join(dict.fromkeys(texts))


class _Kept:
    """Files that are to be kept, by their names in the folder of the copies.

    Attributes:
        modules: names of the copied modules.
        notes: what is left out, and why.
    """

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.notes: list[str] = []
        self._files: dict[str, bytes] = {}
        self._copied = 0
        """Bytes of the copied modules."""
        self._over: list[Path] = []
        """Modules that are over a limit."""

    def take_module(self, module: str, place: Path) -> None:
        """Take the file of a module, or all modules of a package."""
        if place.is_dir():
            found, whole = _modules_below(place)
            if not whole:
                self.notes.append(f"{place} holds too many files: only some of its modules are kept")
            inside = "/".join(module.split("."))
            for path in found:
                self._take(f"{inside}/{path.relative_to(place).as_posix()}", path)
        elif place.suffix in _SOURCE:
            # A script is no part of a package.
            *above, _ = module.split(".")
            self._take("/".join((*above, place.name)), place)
        else:
            self.notes.append(f"{place} is no source of Python: it is not kept")

    def take_diff(self, state: RepositoryState) -> str | None:
        """Take the diff of a repository. Returns its name; ``None`` if it is empty."""
        if not state.diff:
            return None
        stem = name = state.path.name or "repository"
        number = 1
        while f"{name}.diff" in self._files:
            number += 1
            name = f"{stem}-{number}"
        self._files[f"{name}.diff"] = state.diff
        return f"{name}.diff"

    def write(self, folder: RunFolder) -> str | None:
        """Write all files, unless they are there already. Returns their folder; ``None`` if there is none."""
        if self._over:
            limits = f"at most {FILES_LIMIT} modules and {COPY_LIMIT:,} bytes are"
            self.notes.append(f"modules not kept: {len(self._over)}, the first is {self._over[0]}; {limits}")
        if not self._files:
            return None
        content = json.dumps([[name, hashlib.sha256(self._files[name]).hexdigest()] for name in sorted(self._files)])
        path = folder.code / hashlib.sha256(content.encode()).hexdigest()[:12]
        try:
            if not self._is_at(path):
                self._write(path)
        except OSError as error:
            self.notes.append(f"{path} cannot be written: {error.strerror or error}")
            self.modules.clear()
            return None
        return path.relative_to(folder.path).as_posix()

    def _take(self, name: str, path: Path) -> None:
        try:
            if not path.is_file():
                # A pipe or a terminal, for instance, that Python has read its script from.
                self.notes.append(f"{path} is not kept: it is no file")
                return
            size = path.stat().st_size
            if len(self.modules) >= FILES_LIMIT or self._copied + size > COPY_LIMIT:
                self._over.append(path)
                return
            content = path.read_bytes()
        except OSError as error:
            self.notes.append(f"{path} is not kept: {error.strerror or error}")
            return
        if self._files.setdefault(name, content) != content:
            self.notes.append(f"{path} is not kept: another file is called {name}")
            return
        if name not in self.modules:
            self.modules.append(name)
            self._copied += len(content)

    def _is_at(self, path: Path) -> bool:
        """Whether a launch before has written the same. A power cut may have left empty files: nothing is synced."""
        with contextlib.suppress(FileNotFoundError):
            return all((path / name).read_bytes() == content for name, content in self._files.items())
        return False

    def _write(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        sweep(path.parent)
        partial = path.with_name(f"{path.name}.fresh{PARTIAL}")
        try:
            for name, content in self._files.items():
                file = partial / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            if path.exists():
                remove_folder(path)
            partial.rename(path)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _own_places(modules: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Module -> its file or folder, of those that are the user's own."""
    for module in modules:
        place = None
        # A module may have no spec, and finders of other packages may raise anything.
        with contextlib.suppress(Exception):
            place = place_of(module)
        if place is None or module.partition(".")[0] == "penstock":
            continue
        if not is_installed(place) and not _INSTALLED & set(place.parts):
            yield module, place


def _modules_below(package: Path) -> tuple[list[Path], bool]:
    """The modules of a package and of the packages in it, in order; and whether these are all."""
    found: list[Path] = []
    seen = 0
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(name for name in folders if name.isidentifier() and name != "__pycache__")
        found += [Path(folder, name) for name in sorted(files) if name.endswith(".py")]
        seen += len(folders) + len(files)
        if seen > _ENTRIES_LIMIT or len(found) > FILES_LIMIT:
            return found[:FILES_LIMIT], False
    return found, True
