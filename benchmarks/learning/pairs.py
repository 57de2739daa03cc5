"""Tasks that penstock and stable-baselines3 both train, and the settings of each side. Trains nothing itself."""

import json
import tomllib
from typing import Any, NamedTuple

from benchmarks.runs import flags
from penstock.config.sources import from_mapping, preset_path

OURS = "penstock"
PEER = "stable-baselines3"
ONE_THREAD = {"threads": 1, "num_workers": 1}


class Pair(NamedTuple):
    """A task, an algorithm, and the settings of each side."""

    title: str
    """Title of the picture."""
    preset: str | None
    """Preset of ours. Without one ours is trained at its defaults."""
    ours: dict[str, Any]
    """Settings of ours beside those of the preset."""
    environment: str
    """The peer's virtual environment."""
    script: str
    """The peer's script, of `benchmarks/peers`."""
    theirs: dict[str, Any]
    """Settings of the peer that are not its defaults."""
    times: float = 0.0
    """The bar of the peer's seconds divided by ours."""

    def our_words(self) -> list[str]:
        """The words behind `penstock train`, without a seed."""
        preset = [] if self.preset is None else ["--preset", self.preset]
        return [*preset, *flags(self.ours)]

    def their_words(self) -> list[str]:
        """The words behind the peer's script, without a seed."""
        return flags(self.theirs)

    def settings(self) -> dict[str, dict[str, Any]]:
        """The settings of each side, for a result: all our hyper-parameters, and the settings that are no defaults."""
        preset = {} if self.preset is None else tomllib.loads(preset_path(self.preset).read_text("utf-8"))
        asked = preset | self.ours
        config = from_mapping(asked)
        kept = {*asked, "num_envs", *vars(config.algorithm)}
        ours = {name: value for name, value in config.values().items() if name in kept}
        # As JSON and TOML give it back: a tuple is a list there.
        return {OURS: json.loads(json.dumps(ours)), PEER: self.theirs}


def at_defaults(algo: str, env: str, timesteps: int, environment: str) -> Pair:
    """Both sides at their own defaults, 100 greedy episodes at the end; the peer in its ``environment``."""
    task = {"algo": algo, "env": env, "timesteps": timesteps}
    return Pair(
        title=f"{algo.upper()} on {env}, each side at its own defaults",
        preset=None,
        ours=task | {"eval_episodes": 100} | ONE_THREAD,
        environment=environment,
        script="sb3_learn.py",
        theirs=task | {"episodes": 100, "threads": 1},
    )


HALFCHEETAH = {"env": "HalfCheetah-v5", "timesteps": 300_000, "min_rows": 10_000}
"""What both sides of a pair on this task share, by the names of both."""

PAIRS = {
    "halfcheetah-sac": Pair(
        # Two gradient steps of ours take no longer than one of the peer's.
        title="SAC on HalfCheetah-v5, minibatches of 256, two layers of 256; 2 updates a step and 1",
        preset="halfcheetah",
        ours={"backend": "compiled"} | ONE_THREAD,
        environment="sb3-mujoco",
        script="sb3_sac.py",
        # Its own learning rate, and its own one gradient step for each step.
        theirs=HALFCHEETAH | {"lr": 3e-4, "episodes": 10, "threads": 1},
    ),
    "halfcheetah-sac-same-settings": Pair(
        # Ours at its defaults but for what the peer does otherwise: one environment, and a gradient step after each of
        # its steps. Networks, learning rates, minibatches, gamma and tau are the same by default.
        title="SAC on HalfCheetah-v5, both at stable-baselines3's settings",
        preset=None,
        ours=HALFCHEETAH
        | {
            "algo": "sac",
            "num_envs": 1,
            "num_steps": 1,
            # An update is one step here: a checkpoint each 10,000 steps.
            "save_interval": 10_000,
            "eval_episodes": 100,
            "backend": "fused",
        }
        | ONE_THREAD,
        environment="sb3-mujoco",
        script="sb3_sac.py",
        theirs=HALFCHEETAH | {"episodes": 100, "threads": 1},
        times=2.5,
    ),
    "lunarlander-ppo": at_defaults("ppo", "LunarLander-v3", 500_000, "sb3-box2d"),
    "lunarlander-dqn": at_defaults("dqn", "LunarLander-v3", 100_000, "sb3-box2d"),
    "lunarlander-sac": at_defaults("sac", "LunarLanderContinuous-v3", 100_000, "sb3-box2d"),
    "lunarlander-td3": at_defaults("td3", "LunarLanderContinuous-v3", 100_000, "sb3-box2d"),
}
