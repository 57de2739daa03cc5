"""Settings of what a run learns, and by which algorithm. The algorithm's own settings are in its ``spec.py``."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.config.fields import Wrapping
from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["EnvironmentConfig"]


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig(SettingsGroup):
    """The environment, what the user puts around it, and the algorithm that learns in it."""

    title: ClassVar[str] = "Environment and algorithm"

    env: str = setting(
        "Pendulum-v1",
        "the environment: a Gymnasium id; module:Id, of a module that registers it; module:name of a class "
        "or function that makes it; envpool:task; pettingzoo:module; or a game or simulator: gamecore://module:Agent, "
        "godot://, mlagents:// or dm_env_rpc://ADDRESS; left out, an algorithm without real-numbered actions (dqn, "
        "apex, r2d2) takes CartPole-v1",
        pattern=r"(?s).*\S.*",
        form="the name of an environment",
        fixed="its checkpoints are of this environment",
    )
    env_args: dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": """the environment's keyword arguments, as JSON: '{"config": {"duration": 20}}'; in TOML a table""",
            "fixed": "it was trained with these arguments",
        },
    )
    wrap: tuple[Wrapping, ...] | None = setting(
        None,
        "wrapper around each environment; for several, repeat the flag or separate them by commas, the first is the "
        'innermost; with arguments in TOML: wrap = [{use = "module:Wrapper", arguments = {size = 84}}]',
        adds=True,
        fixed="it was trained on the environment with these wrappers",
    )
    reward: str | None = setting(
        None,
        "your own reward in place of the environment's: a function for each step, or a class for each episode "
        "(docs/rewards.md); reported returns stay the environment's",
        pattern=r"(?s).*\S.*",
        form="module:name of a function or a class",
        adds=True,  # so that a second one is refused, and does not take the place of the first
        fixed="its values were learned from these rewards",
    )
    algo: str = setting(
        "ppo",
        "algorithm: a name that `penstock algos` lists, or your own package, such as my_package.my_algorithm",
        pattern=r".+",
        form="the name of an algorithm",
        fixed="its checkpoints are this algorithm's",
    )
