"""What a run has learned, as something that can be compared bit for bit."""

import hashlib

from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint, load_table


def fingerprint(result: Result) -> dict[str, str]:
    """A hash of each array of a run's last checkpoint, and of each array of its table."""
    path = find_checkpoint(result.run_folder)
    arrays = {**load_checkpoint(path).arrays, **{f"table.{k}": v for k, v in (load_table(path) or {}).items()}}
    # In which slot a rollout lay, how long the run took: no part of the answer.
    if "taken" in arrays:
        arrays["taken"] = arrays["taken"].max()
    apart = ("consumed", "elapsed")
    return {k: hashlib.sha256(v.tobytes()).hexdigest() for k, v in arrays.items() if not k.startswith(apart)}
