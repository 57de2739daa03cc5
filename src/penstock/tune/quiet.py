"""Ray Tune without what it prints and draws beside the table of `penstock tune`."""

import contextlib
import logging
import warnings
from collections.abc import Iterator

from penstock.cluster.ray_variables import ray_variables

__all__ = ["quiet_ray_tune"]

_VARIABLES = {
    "RAY_AIR_NEW_OUTPUT": "0",
    # Ray's handler of Ctrl-C would not tell us that it was pressed. `penstock.processes.interrupts.Interrupts` does.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # TensorBoard would show Ray's curves of each trial beside those of its run.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Of a trial that fails while all are stopped, Ray would show its own traceback. The table says why it failed.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}


@contextlib.contextmanager
def quiet_ray_tune() -> Iterator[None]:
    """Keep Ray Tune quiet within the ``with`` block. Afterwards this process is as it was before."""
    logger = logging.getLogger("ray.tune")
    level = logger.level
    # The reason of a trial that fails stands in the table; Ray would show three tracebacks for each.
    logger.setLevel(logging.CRITICAL)
    try:
        with ray_variables(_VARIABLES), warnings.catch_warnings():
            # This advice of Ray is for those who write trainables.
            warnings.filterwarnings("ignore", message="Consider boosting PBT performance")
            # Optuna stores nothing here, so a choice may be of any type.
            warnings.filterwarnings("ignore", message="Choices for a categorical distribution")
            yield
    finally:
        logger.setLevel(level)
