"""Atari games by ale-py's own vector environment, preprocessed as is usual.

Four frames an action, the last two by their maximum, grey, 84 x 84, four of them stacked; up to 30 no-ops at the start,
then FIRE where a game waits for it. Rewards stay the game's own, so that returns are: `clip_reward` is the algorithm's.
Whether actions stick (Machado et al. 2018, https://arxiv.org/abs/1709.06009) is the id's: ``ALE/Pong-v5`` with 0.25,
``PongNoFrameskip-v4`` without. Sources: Mnih et al. 2015, https://doi.org/10.1038/nature14236; the wrappers of
stable-baselines3 and CleanRL, which differ in one point: they also end an episode with each life
(``episodic_life``, https://docs.cleanrl.dev/rl-algorithms/ppo/).
"""

import functools
import shlex
from typing import Any

import numpy as np

from penstock.config.schema import Config
from penstock.types import EnvFactory

__all__ = ["NOTE", "is_name", "lanes_of", "make_lanes", "preset_hint", "serves"]

NOTE = "Atari: 4 frames an action, maximum of the last 2, grey 84 x 84, 4 stacked, up to 30 no-ops; docs/atari.md"
PRESETS = {"ppo": "atari", "dqn": "atari-dqn", "apex": "atari-apex"}
"""Algorithm -> the preset with its usual settings for games."""
FRAMES = 4
"""An action."""
STACKED = 4
"""Frames of an observation."""


def is_name(name: str) -> bool:
    """True for the ids of ale-py's games that are served here."""
    return name.startswith("ALE/") or "NoFrameskip-v" in name


def preset_hint(config: Config) -> str:
    """One line that points to the preset for games, where rewards are not clipped as it clips them; else empty."""
    run = config.run
    if not is_name(run.env) or run.algo not in PRESETS or config.algorithm.clip_reward:
        return ""
    usual = f"--preset {PRESETS[run.algo]} --env {shlex.quote(run.env)}"
    return f"Atari: these are not the usual settings for games, which {run.algo} has by: penstock train {usual}"


def serves(spec: Any) -> bool:
    """True for a game whose number of frames an action is fixed: ``ALE/*-v5`` and ``*NoFrameskip-v*``."""
    return str(spec.entry_point) == "ale_py.env:AtariEnv" and isinstance(spec.kwargs.get("frameskip"), int)


def lanes_of(spec: Any) -> EnvFactory:
    """What makes a vector environment of the game that a Gymnasium spec names."""
    names = ("game", "repeat_action_probability", "full_action_space", "max_num_frames_per_episode")
    return functools.partial(make_lanes, **{name: spec.kwargs[name] for name in names})


def make_lanes(
    game: str,
    num_envs: int,
    *,
    repeat_action_probability: float = 0.0,
    full_action_space: bool = False,
    max_num_frames_per_episode: int = 108_000,
    episodic_life: bool = False,
) -> Any:
    """``num_envs`` lanes of a game.

    Args:
        game: in snake case, as ale-py names its cartridges: ``space_invaders``.
        num_envs: lanes.
        repeat_action_probability: how often the last action is taken in place of the one that is given.
        full_action_space: all 18 actions, also those that do nothing in this game.
        max_num_frames_per_episode: then an episode is truncated: half an hour of play.
        episodic_life: an episode ends with each life.
    """
    from ale_py.vector_env import AtariVectorEnv  # noqa: PLC0415  # 0.1 s, for whoever asks for it

    return _Lanes(
        AtariVectorEnv(
            game,
            num_envs,
            # Environment processes are what runs side by side.
            num_threads=1,
            frameskip=FRAMES,
            stack_num=STACKED,
            repeat_action_probability=repeat_action_probability,
            full_action_space=full_action_space,
            max_num_frames_per_episode=max_num_frames_per_episode,
            episodic_life=episodic_life,
            reward_clipping=False,
        )
    )


class _Lanes:
    """Leaves resets to whoever steps, one seed each: so an episode depends on its seed and its actions alone.

    ale-py resets an ended lane in the next step unless somebody has reset it before, as is done here.
    """

    # Of Gymnasium's interface. ale-py begins an episode with a frame behind zeros.
    metadata = {"autoreset_mode": "Disabled", "frame_stack": {"frames": STACKED, "padding": "zero"}}  # noqa: RUF012

    def __init__(self, env: Any) -> None:
        self._env = env
        self.num_envs = env.num_envs
        self.single_observation_space = env.single_observation_space
        self.single_action_space = env.single_action_space

    def reset(self, *, seed: Any, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        return self._env.reset(seed=seed, options=options)  # type: ignore[no-any-return]

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        obs, reward, terminated, truncated, info = self._env.step(action)
        return obs, reward.astype(np.float32), terminated, truncated, info

    def close(self) -> None:
        self._env.close()
