"""Runs a program on the machines of a Ray cluster. Only this package and `penstock.tune` import Ray.

`launch` is the way in; `places` says which machine runs which nodes, and `seats` which has policy nodes. On each other
machine a `Host` runs environment nodes, policy nodes and learners over shared memory of its own. `Relay` joins the
hosts with the run's own segment.
"""

import os

REMOTE_OUTPUT = "PENSTOCK_REMOTE_OUTPUT"
"""Environment variable: the launcher shows what processes on other machines print, unless it is empty or 0."""
_LOST_MACHINE = "has been marked dead because the detector"
"""In Ray's words on any machine of the cluster that is lost. Of those that a run uses it says so itself. What Ray says
if its process alone dies stays: of the launcher's machine these words are the only ones."""

if os.environ.get(REMOTE_OUTPUT, "") in {"", "0"}:
    # Ray reads it when it is imported. `log_to_driver` does not apply to these words.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _LOST_MACHINE)
