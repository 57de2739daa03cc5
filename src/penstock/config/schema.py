"""All settings of a run, put together from the groups in ``settings/``. Defines none itself.

Hyper-parameters of an algorithm are in its ``spec.py``.
"""

from dataclasses import dataclass

from penstock.config.settings.collection import CollectionConfig
from penstock.config.settings.computation import ComputationConfig
from penstock.config.settings.environment import EnvironmentConfig
from penstock.config.settings.evaluation import EvaluationConfig
from penstock.config.settings.games import GamesConfig
from penstock.config.settings.group import SettingsGroup
from penstock.config.settings.learners import LearnersConfig
from penstock.config.settings.machines import MachinesConfig
from penstock.config.settings.policy_age import PolicyAgeConfig
from penstock.config.settings.replay_table import ReplayTableConfig
from penstock.config.settings.run_folder import RunFolderConfig
from penstock.config.settings.stepping import SteppingConfig
from penstock.config.settings.supervision import SupervisionConfig

__all__ = ["GROUPS", "RunConfig"]


# A dataclass takes the fields of its last base first. So the groups stand here from the last in the help to the first.
@dataclass(frozen=True, kw_only=True)
class RunConfig(
    SupervisionConfig,
    GamesConfig,
    SteppingConfig,
    PolicyAgeConfig,
    EvaluationConfig,
    RunFolderConfig,
    ReplayTableConfig,
    LearnersConfig,
    ComputationConfig,
    MachinesConfig,
    CollectionConfig,
    EnvironmentConfig,
):
    """All settings of a run except the algorithm's hyper-parameters. Each has its default.

    ``penstock train --help`` describes every setting, with its range and its unit.
    """


GROUPS = tuple(base for base in reversed(RunConfig.__bases__) if issubclass(base, SettingsGroup))
"""The groups of these settings, in the order of their fields and of the help."""
