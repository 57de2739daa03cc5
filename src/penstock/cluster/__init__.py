"""Runs a program on the machines of a Ray cluster. Only this package and `penstock.tune` import Ray.

`launch` is the way in; `places` says which machine runs which nodes, and `seats` which has policy nodes. On each other
machine a `Host` runs environment nodes, policy nodes and learners over shared memory of its own. `Relay` joins the
hosts with the run's own segment.
"""

import os

REMOTE_OUTPUT = "PENSTOCK_REMOTE_OUTPUT"
"""Environment variable: the launcher shows what processes on other machines print, unless it is empty or 0."""
_LOST_MACHINE = "has been marked dead because the detector"
"""A part of Ray's message about a lost machine. The launcher does not show this message: Ray prints it for all machines
of the cluster, and penstock tells of the lost machines that its run uses.

Ray has another message for a machine on which only Ray's own process has died. That one is shown: for the launcher's
machine there is no other message."""

HEADLESS_S = 180.0
"""Ray ends this process, without a word, so long after its head is lost. Its default, a minute, is too short on a busy
machine: `penstock.cluster.head.HeadWatch` ends the run after 40 s, and what it then saves and says takes its time."""

# Ray reads it when it is imported. Set later, it holds for some of Ray's connections only.
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", f"{HEADLESS_S:.0f}")
if os.environ.get(REMOTE_OUTPUT, "") in {"", "0"}:
    # Ray reads it when it is imported. `log_to_driver` does not apply to these words.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _LOST_MACHINE)
