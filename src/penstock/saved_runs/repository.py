"""Asks git which commit a folder of code is at, and what was changed since. Changes nothing, and waits a short time."""

import contextlib
import os
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

from penstock.paths import expanded

__all__ = ["DIFF_LIMIT", "RepositoryState", "repository_of", "state_of"]

DIFF_LIMIT = 1 << 20
"""Bytes of a diff that are kept."""
LIMIT_S = 2.0
"""A run does not wait longer for git. It answers within some milliseconds, unless a repository is huge."""
_QUIET = ("-c", "core.fsmonitor=false", "-c", "diff.autoRefreshIndex=false")
"""Git asks no process of the user's which files were changed, and does not write into its index that they were not."""
_SECRETS = (".env*", "*.pem", "*.key")
"""Names of files that often hold passwords or keys: no diff has them."""
_DIFF = (
    *("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--submodule=short", "--"),
    *(f":(exclude,icase,glob)**/{name}" for name in _SECRETS),
)
"""A diff in git's own form, which ``git apply`` takes, whatever the user has configured."""


class RepositoryState(NamedTuple):
    """A git repository as a run finds it."""

    path: Path
    """Its working tree."""
    commit: str | None
    """``None``: it is not known."""
    diff: bytes | None
    """Changes of tracked files since the commit, `DIFF_LIMIT` bytes of them at most; ``None``: they are not known."""
    notes: tuple[str, ...]
    """What could not be found out, and why."""


def repository_of(path: Path) -> Path | None:
    """The innermost folder above a file or folder that has a ``.git``; ``None`` if there is none. Starts no process."""
    for folder in (path, *path.parents):
        # Another user's folder may not be read.
        with contextlib.suppress(OSError):
            # In a worktree or a submodule it is a file.
            if (folder / ".git").exists():
                return folder
    return None


def state_of(repository: Path) -> RepositoryState:
    """The commit of a repository, and the changes of tracked files since. Raises nothing: notes say what is missing."""
    try:
        asked = subprocess.run(
            _command(repository, "rev-parse", "--verify", "HEAD"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_environment(repository),
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return _unknown(repository, _why(error))
    if asked.returncode != 0:
        said = asked.stderr.decode(errors="replace").strip().partition("\n")[0]
        return _unknown(repository, said or f"it ended with {asked.returncode}")
    diff, note = _diff(repository)
    return RepositoryState(repository, asked.stdout.decode(errors="replace").strip(), diff, (note,) if note else ())


def _unknown(repository: Path, why: str) -> RepositoryState:
    return RepositoryState(repository, None, None, (f"the commit of {repository} is not known: {why}",))


def _diff(repository: Path) -> tuple[bytes | None, str]:
    """The diff, and a note if it is not whole."""
    changes = f"the changes in {repository} since its commit are"
    if repository == expanded("~").resolve():
        return None, f"{changes} not kept: it is your home folder, whose other files are no code of this run"
    expired = threading.Event()
    try:
        with subprocess.Popen(
            _command(repository, *_DIFF),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(repository),
        ) as git:

            def end() -> None:
                expired.set()
                git.kill()

            timer = threading.Timer(LIMIT_S, end)
            timer.start()
            try:
                # A diff may be longer than memory, so no more of it is read.
                found = b"" if git.stdout is None else git.stdout.read(DIFF_LIMIT + 1)
                if len(found) > DIFF_LIMIT:
                    git.kill()
                    return found[:DIFF_LIMIT], f"{changes} more than {DIFF_LIMIT:,} bytes: the rest is not kept"
                code = git.wait()
            finally:
                timer.cancel()
    except OSError as error:
        return None, f"{changes} not known: {_why(error)}"
    if expired.is_set():
        return None, f"{changes} not known: git took longer than {LIMIT_S:g} s"
    return (found, "") if code == 0 else (None, f"{changes} not known: git ended with {code}")


def _command(repository: Path, *arguments: str) -> tuple[str, ...]:
    return ("git", "-C", str(repository), *_QUIET, *arguments)


def _environment(repository: Path) -> dict[str, str]:
    """The environment variables for git: it looks at no folder above, takes no lock, fetches nothing, asks nobody."""
    own = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    kept = {name: value for name, value in os.environ.items() if name not in own}
    told = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    return {**kept, **told, "GIT_CEILING_DIRECTORIES": str(repository.parent)}


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "git is not installed"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it took longer than {LIMIT_S:g} s"
    return str(getattr(error, "strerror", None) or error)
