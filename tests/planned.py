"""A config that is settled, for tests of what is built from it."""

from unittest.mock import patch

from penstock.config.sources import from_mapping
from penstock.envs.sources import EnvProfile, probe
from penstock.planning import Prepared, prepare
from penstock.processes.starts import Processes
from penstock.types import EnvReference

__all__ = ["prepared"]


def prepared(**settings: object) -> Prepared:
    """What a run with these settings would be prepared to, in an environment of the tests if they name none.

    The environment is opened in this process: in one of its own, most of such a test would be that process's start.
    """
    with Processes() as processes, patch("penstock.planning.prepared.probe_apart", _probe):
        return prepare(from_mapping({"env": "tests.environments:ClockEnv", **settings}), processes)


def _probe(processes: Processes, env: EnvReference, vector: bool, **named: object) -> EnvProfile:
    del processes
    return probe(env, vector, **named)
