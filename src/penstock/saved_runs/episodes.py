"""Kept episodes: what a policy saw and did in a game, and what it was paid, one file for each episode.

`EpisodeFiles` writes them and removes the oldest, `write_episode` and `write_content` write one, `read_episode` reads
one. Learns nothing from them.
"""

import contextlib
import errno
import math
import os
import secrets
import zipfile
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from penstock.errors import BadDataError
from penstock.kernels.actions import environment_array
from penstock.kernels.finite import are_finite
from penstock.saved_runs.durable import PARTIAL, sweep
from penstock.types import ActionSpace, Array, Arrays, Box, Composite, Discrete, Leaf, Spaces

__all__ = [
    "EpisodeFiles",
    "KeptEpisode",
    "episode_number",
    "is_held_out",
    "list_episodes",
    "read_episode",
    "write_content",
    "write_episode",
]

_ROUNDING = 1e-4
"""By this share of the width of its space an action may lie outside of it."""
_OWN = frozenset({"action", "reward", "terminated", "vanished", "session"})
"""Arrays of a file that are no observation fields. Files of an older penstock have no ``seen_by`` beside them."""


class KeptEpisode(NamedTuple):
    """One episode of n steps."""

    session: str
    obs: Arrays
    """Field -> ``[n + 1, ...]``; ``[n, ...]`` if the client vanished."""
    action: Array
    """``[n, ...]`` in the game's own units."""
    reward: Array
    """``[n]``; one less if the client vanished."""
    terminated: bool
    vanished: bool
    agent: str = ""
    """Name of the agent that gave these observations and rewards; empty: they are as the client has sent them."""


class EpisodeFiles:
    """Writes ``episode-00000001.npz`` and so on, and removes the oldest.

    Args:
        folder: is made with the first episode. Two processes may write into it while one replaces the other.
        keep: how many to keep; 0: none.
        keep_bytes: how many bytes of them to keep.
    """

    def __init__(self, folder: Path, keep: float, keep_bytes: float = math.inf) -> None:
        self._folder = folder
        self._keep = keep
        self._keep_bytes = keep_bytes
        self._partial = f"episode-{secrets.token_hex(8)}{PARTIAL}"
        if keep and folder.is_dir():
            sweep(folder)
        self._files: deque[tuple[Path, int]] = deque()
        for path in list_episodes(folder) if keep else ():
            # The process that this one replaces may remove it meanwhile.
            with contextlib.suppress(FileNotFoundError):
                self._files.append((path, path.stat().st_size))
        self._bytes = sum(size for _, size in self._files)

    @property
    def is_on(self) -> bool:
        """Whether episodes are kept at all."""
        return self._keep > 0

    @property
    def has_room(self) -> bool:
        """Whether one more episode takes the place of none."""
        return len(self._files) < self._keep and self._bytes < self._keep_bytes

    def add(self, episode: KeptEpisode) -> None:
        """Write one episode, whole or not at all. The newest file stays, however large it is.

        Raises:
            OSError: it could not be written.
        """
        number = episode_number(self._files[-1][0]) + 1 if self._files else 1
        self._folder.mkdir(parents=True, exist_ok=True)
        # Not synced to the disk: that would keep all games waiting, and an episode is no checkpoint.
        partial, path = self._folder / self._partial, None
        try:
            while path is None:
                with partial.open("wb") as file:
                    np.savez(file, **_arrays(episode))
                    size = file.tell()
                # Race: 1. This file is written. 2. The process that replaces this one begins, and removes unfinished
                # files. That happens only once, so the file is written again.
                with contextlib.suppress(FileNotFoundError):
                    path = self._placed(partial, number)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
        self._files.append((path, size))
        self._bytes += size
        while len(self._files) > 1 and (len(self._files) > self._keep or self._bytes > self._keep_bytes):
            oldest, freed = self._files.popleft()
            oldest.unlink(missing_ok=True)
            self._bytes -= freed

    def _placed(self, partial: Path, number: int) -> Path:
        """Give a file the first free number from ``number`` on. Returns its path."""
        while (path := _path(self._folder, number)).exists():
            number += 1
        try:
            # Unlike a rename, it replaces no file that another process has written since.
            os.link(partial, path)
        except FileExistsError:
            return self._placed(partial, number + 1)
        except OSError:  # a file system without links
            partial.replace(path)
        else:
            partial.unlink(missing_ok=True)
        return path


def write_episode(folder: Path, number: int, episode: KeptEpisode) -> None:
    """Write the episode of this number, whole or not at all. A file of that number is replaced.

    Raises:
        OSError: it could not be written.
    """
    _write(folder, number, lambda file: np.savez(file, **_arrays(episode)))


def write_content(folder: Path, number: int, content: Array) -> None:
    """Write the file of this episode as another machine has written it: uint8 ``[bytes]``. As `write_episode`.

    Raises:
        OSError: it could not be written.
    """
    _write(folder, number, lambda file: file.write(content.data))


def _write(folder: Path, number: int, write: Callable[[BinaryIO], object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # If the process is killed meanwhile, the next attempt at this episode replaces what is left.
    partial = folder / f"episode-{number:08d}{PARTIAL}"
    try:
        with partial.open("wb") as file:
            write(file)
        partial.replace(_path(folder, number))
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def list_episodes(folder: Path) -> list[Path]:
    """The files of kept episodes in a folder, oldest first; empty if there is no such folder."""
    found = [path for path in folder.glob("episode-*.npz") if path.stem.partition("-")[2].isdigit()]
    return sorted(found, key=episode_number)


def episode_number(path: Path) -> int:
    """The number in the name of a kept episode's file."""
    return int(path.stem.partition("-")[2])


def is_held_out(number: int, share: float) -> bool:
    """Whether nothing is learned from this episode: evenly spread, this share of all numbers from 1 on."""
    return math.floor(number * share) > math.floor((number - 1) * share)


def read_episode(path: Path, spaces: Spaces) -> KeptEpisode:
    """Read a kept episode, and check that it is of these spaces. Nothing is unpickled.

    Raises:
        FileNotFoundError: the file is gone: the process that writes the folder has removed it.
        OSError: it cannot be read.
        BadDataError: the file is no kept episode, or one of other spaces; it holds NaN or infinity, or actions or
            Discrete observations that are not in their space.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, KeyError):
        raise BadDataError(f"{path} is no kept episode") from None
    except OSError as error:
        # A damaged file may lead to a place before its beginning.
        if error.errno != errno.EINVAL:
            raise
        raise BadDataError(f"{path} is no kept episode") from None
    if not arrays.keys() >= _OWN:
        raise BadDataError(f"{path} is no kept episode: it has no {min(_OWN - arrays.keys())}")
    vanished, terminated = bool(arrays["vanished"]), bool(arrays["terminated"])
    action, reward = arrays["action"], arrays["reward"]
    count = len(action) if action.ndim else 0
    of_action = environment_array(spaces.action, 1)
    wanted = {spec.name: ((count + (not vanished), *spec.shape), np.dtype(spec.dtype)) for spec in spaces.obs_specs()}
    wanted["action"] = ((count, *of_action.shape[1:]), of_action.dtype)
    wanted["reward"] = ((max(0, count - vanished),), np.dtype(np.float32))
    for name, (shape, dtype) in wanted.items():
        found = arrays.get(name)
        if found is None or found.shape != shape or found.dtype != dtype:
            has = "missing" if found is None else f"{found.dtype} {list(found.shape)}"
            raise BadDataError(f"{path} is of another policy: its {name} is {has}, not {dtype} {list(shape)}")
        if found.dtype.kind == "f" and not are_finite(found).all():
            raise BadDataError(f"{path}: its {name} holds NaN or infinity")
    _check_bounds(path, "action", action, spaces.action)
    for name, space in spaces.obs:
        if isinstance(space, Discrete):
            _check_bounds(path, name, arrays[name], space)
    obs = {name: arrays[name] for name in wanted if name not in _OWN}
    agent = str(arrays.get("seen_by", ""))
    return KeptEpisode(str(arrays["session"]), obs, action, reward, terminated, vanished, agent)


def _check_bounds(path: Path, name: str, values: Array, space: ActionSpace) -> None:
    """Refuse what is outside its space: real numbers are mostly of another unit, choices counted from another one.

    Args:
        path: of the file, for the error text.
        name: of the array.
        values: ``[n, ...]``.
        space: of each of them.
    """
    low, high, slack = (np.concatenate(bound) for bound in zip(*map(_bounds, _leaves(space)), strict=True))
    rows = values.reshape(len(values), space.size)
    outside = (rows < low - slack) | (rows > high + slack)
    if outside.any():
        step, number = np.argwhere(outside)[0]
        is_not = f"is not within {low[number]:g} to {high[number]:g}, as its space is"
        raise BadDataError(f"{path}: {name} {rows[step, number]:g} of step {step} {is_not}; check its unit")


def _leaves(space: ActionSpace) -> list[Leaf]:
    return [leaf for _, leaf in space.leaves] if isinstance(space, Composite) else [space]


def _bounds(leaf: Leaf) -> tuple[Array, Array, Array]:
    """The lowest and the highest value of each element, and by how much it may be outside. Infinite without bounds."""
    if not isinstance(leaf, Box):
        low = np.array([leaf.start] if isinstance(leaf, Discrete) else leaf.starts, np.float64)
        return low, low + np.array(leaf.choices) - 1, np.zeros(leaf.size)
    low, high = (
        np.resize(np.array(bound or (beyond,), np.float64), leaf.size)
        for bound, beyond in ((leaf.low, -math.inf), (leaf.high, math.inf))
    )
    # An action at a bound may be rounded.
    with np.errstate(invalid="ignore"):
        return low, high, np.where(np.isfinite(high - low), _ROUNDING * (high - low), 0.0)


def _path(folder: Path, number: int) -> Path:
    """The file of the episode of this number."""
    return folder / f"episode-{number:08d}.npz"


def _arrays(episode: KeptEpisode) -> dict[str, Any]:
    """What the file of an episode holds."""
    return {
        **episode.obs,
        "action": episode.action,
        "reward": episode.reward,
        "terminated": np.array(episode.terminated),
        "vanished": np.array(episode.vanished),
        "session": np.array(episode.session),
        "seen_by": np.array(episode.agent),
    }
