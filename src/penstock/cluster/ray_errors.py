"""What errors of Ray say."""

import re

from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayActorError, RayTaskError

__all__ = ["NO_ROOM", "line_of", "machine_error", "other_versions"]

NO_ROOM = (ObjectStoreFullError, OutOfDiskError)
"""The object store of a machine is full. If it also was that of the host, and not of the caller, the error is a
`RayTaskError` as well."""
_VERSIONS = re.compile(r"Version mismatch.*Ray: (\S+)\s+Python: (\S+).*Ray: (\S+)\s+Python: (\S+)", re.DOTALL)
"""First the versions of the cluster, then those of this process."""


def machine_error(error: BaseException) -> tuple[str, bool]:
    """A line on why a call failed. True if the host's own code is at fault, false if the machine is lost."""
    return line_of(error), isinstance(error, RayTaskError) and not isinstance(error, RayActorError)


def line_of(error: BaseException) -> str:
    """The last line of what an error of Ray says."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


def other_versions(error: BaseException) -> str | None:
    """The versions of Ray and Python that a cluster has, and those of this machine; ``None`` for any other error.

    Ray compares all parts of both versions.
    """
    found = _VERSIONS.search(str(error))
    if found is None:
        return None
    ray_there, python_there, ray_here, python_here = found.groups()
    return (
        f"has Python {python_there} and Ray {ray_there}, and this machine has Python {python_here} and Ray {ray_here}"
    )
