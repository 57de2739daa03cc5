"""Manifests: facts about the files beside them, the hash of each file, and their own hash. Plain JSON.

`write_manifest` and `parse_manifest` are for checkpoints. Other folders seal facts of their own. Loads no array.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = [
    "FORMAT",
    "MANIFEST",
    "SIZE_LIMIT",
    "Damage",
    "content_of",
    "listed",
    "parse_manifest",
    "seal",
    "unseal",
    "verified",
    "write_manifest",
]

MANIFEST = "manifest.json"
FORMAT = 3
"""Number of the format of checkpoints. It grows by one with each change; older formats are migrated, or refused by
number."""
SIZE_LIMIT = 1 << 20
"""No manifest is so long. Longer files are not read."""

_NEEDED = {"kind": str, "update": int, "steps": int, "env": str, "algorithm": str, "spaces": str, "files": dict}


class Damage(Exception):  # noqa: N818 - it names what is wrong with a file, in a few words, for an error of penstock
    """What is wrong with a checkpoint, or with another folder that has a manifest. One line, whatever a file says."""

    def __init__(self, what: str) -> None:
        super().__init__(" ".join(what.split()))


def write_manifest(facts: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """The text of a checkpoint's manifest.

    Args:
        facts: about the checkpoint, as JSON values.
        files: name -> content of each file beside the manifest.
    """
    return seal(FORMAT, {"kind": "training", **facts}, files)


def parse_manifest(content: bytes) -> dict[str, Any]:
    """The facts of a checkpoint's manifest, verified against its own hash.

    Raises:
        Damage: it was altered, or this version cannot read its format.
    """
    body = unseal(content, FORMAT)
    for key, kind in _NEEDED.items():
        if not isinstance(body.get(key), kind):
            raise Damage(f"{MANIFEST} has no {key}")
    return body


def seal(number: int, facts: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """The text of a manifest.

    Args:
        number: of its format.
        facts: about the folder, as JSON values.
        files: name -> content of each file beside the manifest.
    """
    created = datetime.now(UTC).isoformat(timespec="seconds")
    body = {"format": number, "created": created, **facts, "files": listed(files)}
    return (json.dumps({**body, "manifest_sha256": _fingerprint(body)}, indent=2) + "\n").encode()


def listed(files: Mapping[str, bytes]) -> dict[str, dict[str, str | int]]:
    """Name of a file -> its hash and its size, as a manifest lists them."""
    return {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)} for name, content in files.items()
    }


def unseal(content: bytes, newest: int) -> dict[str, Any]:
    """The facts of a manifest, verified against its own hash.

    Args:
        content: of the file.
        newest: number of the newest format that this version knows.

    Raises:
        Damage: it was altered, or has a newer format.
    """
    if len(content) > SIZE_LIMIT:
        raise Damage(f"{MANIFEST} is too long to be one")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise Damage(f"{MANIFEST} is not JSON") from None
    if not isinstance(body, dict):
        raise Damage(f"{MANIFEST} is not a JSON object")
    number = body.get("format")
    # The format is checked before the hash, because another format may hash in another way.
    if isinstance(number, int) and number > newest:
        read = "format 1" if newest == 1 else f"formats 1 to {newest}"
        raise Damage(f"it has format {number}, which a newer penstock wrote; this one reads {read}")
    if body.pop("manifest_sha256", None) != _fingerprint(body) or number not in range(1, newest + 1):
        raise Damage(f"{MANIFEST} has been altered")
    return body


def verified(folder: Path, name: str, facts: Mapping[str, Any]) -> bytes:
    """The content of a file, verified against what the manifest says of it.

    Raises:
        Damage: it is missing, cannot be read, or was altered.
    """
    content = content_of(folder / name)
    if len(content) != facts["bytes"]:
        raise Damage(f"{name} has {len(content)} of {str(facts['bytes'])[:80]} bytes")
    if hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise Damage(f"{name} has been altered")
    return content


def content_of(path: Path) -> bytes:
    """The content of a file.

    Raises:
        Damage: it is missing, or cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise Damage(f"{path.name} is missing") from None
    except OSError as error:
        raise Damage(f"{path.name} cannot be read: {error.strerror or error}") from None


def _fingerprint(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
