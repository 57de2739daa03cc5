"""What errors of Ray say."""

from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayActorError, RayTaskError

__all__ = ["NO_ROOM", "line_of", "machine_error"]

NO_ROOM = (ObjectStoreFullError, OutOfDiskError)
"""The object store of a machine is full. If it also was that of the host, and not of the caller, the error is a
`RayTaskError` as well."""


def machine_error(error: BaseException) -> tuple[str, bool]:
    """A line on why a call failed. True if the host's own code is at fault, false if the machine is lost."""
    return line_of(error), isinstance(error, RayTaskError) and not isinstance(error, RayActorError)


def line_of(error: BaseException) -> str:
    """The last line of what an error of Ray says."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
