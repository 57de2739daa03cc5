"""A checkpoint's manifest: facts, the hash of each file, and its own hash. Plain JSON; loads no array."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = ["FORMAT", "MANIFEST", "Damage", "parse_manifest", "write_manifest"]

MANIFEST = "manifest.json"
FORMAT = 3
"""Number of the format. It grows by one with each change; older formats are migrated, or refused by number."""
SIZE_LIMIT = 1 << 20
"""No manifest is so long. Longer files are not read."""

_NEEDED = {"kind": str, "update": int, "steps": int, "env": str, "algorithm": str, "spaces": str, "files": dict}


class Damage(Exception):  # noqa: N818 - it names what is wrong with a file, in a few words, for a CheckpointError
    """What is wrong with a checkpoint."""


def write_manifest(facts: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """The text of a manifest.

    Args:
        facts: about the checkpoint, as JSON values.
        files: name -> content of each file beside the manifest.
    """
    listed = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)} for name, content in files.items()
    }
    created = datetime.now(UTC).isoformat(timespec="seconds")
    body = {"format": FORMAT, "kind": "training", "created": created, **facts, "files": listed}
    return (json.dumps({**body, "manifest_sha256": _fingerprint(body)}, indent=2) + "\n").encode()


def parse_manifest(content: bytes) -> dict[str, Any]:
    """The facts of a manifest, verified against its own hash.

    Raises:
        Damage: it was altered, or this version cannot read its format.
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
    if isinstance(number, int) and number > FORMAT:
        raise Damage(f"it has format {number}, which a newer penstock wrote; this one reads formats 1 to {FORMAT}")
    if body.pop("manifest_sha256", None) != _fingerprint(body) or number not in range(1, FORMAT + 1):
        raise Damage(f"{MANIFEST} has been altered")
    for key, kind in _NEEDED.items():
        if not isinstance(body.get(key), kind):
            raise Damage(f"{MANIFEST} has no {key}")
    return body


def _fingerprint(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
