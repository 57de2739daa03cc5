"""A config that is settled, for tests of what is built from it."""

from penstock.config.sources import from_mapping
from penstock.planning import Prepared, prepare
from penstock.processes.starts import Processes

__all__ = ["prepared"]


def prepared(**settings: object) -> Prepared:
    """What a run with these settings would be prepared to, in an environment of the tests if they name none."""
    with Processes() as processes:
        return prepare(from_mapping({"env": "tests.environments:ClockEnv", **settings}), processes)
