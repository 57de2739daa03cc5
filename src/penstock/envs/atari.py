"""Atari games with ale-py's own vector environment and the usual preprocessing.

- Frames: four an action, the maximum of the last two, grey, 84 x 84, four of them stacked.
- Start: up to 30 no-ops, then FIRE if the game waits for it.
- Rewards and returns stay the game's own. `clip_reward` is a setting of the algorithm.
- Sticky actions (Machado et al. 2018, https://arxiv.org/abs/1709.06009) depend on the id: ``ALE/Pong-v5`` has them with
  0.25, ``PongNoFrameskip-v4`` has none.

Sources: Mnih et al. 2015, https://doi.org/10.1038/nature14236; the wrappers of stable-baselines3 and CleanRL. These
differ in one point: they also end an episode with each life (``episodic_life``,
https://docs.cleanrl.dev/rl-algorithms/ppo/).
"""

import functools
import shlex
from typing import Any

import numpy as np

from penstock.config.whole import Config
from penstock.types import EnvFactory

__all__ = ["NOTE", "is_name", "lanes_of", "make_lanes", "preset_hint", "serves"]

NOTE = "Atari: 4 frames an action, maximum of the last 2, grey 84 x 84, 4 stacked, up to 30 no-ops; docs/atari.md"
PRESETS = {
    "ppo": "atari",
    "appo": "atari --algo appo",
    "impala": "atari-impala",
    "dqn": "atari-dqn",
    "apex": "atari-apex",
}
"""Algorithm -> what ``--preset`` takes for its usual settings for games."""
SETTINGS: dict[str, dict[str, object]] = {
    "a2c": {"clip_reward": True},
    "a3c": {"clip_reward": True},
    # Kapturowski et al. 2019, https://openreview.net/forum?id=r1lyTjAqYX. Values are rescaled, so no reward is cut.
    "r2d2": {
        "num_steps": 40,
        "burn_in": 40,
        "learned_steps": 80,
        "mini_batch_size": 5120,
        "n_step": 5,
        "gamma": 0.997,
        "lr": 1e-4,
        "adam_eps": 1e-3,
        "target_every": 2500,
        "dueling": True,
    },
}
"""Algorithm without a preset for games -> what is usual for them, and not its default here."""
FRAMES = 4
"""Frames for each action."""
STACKED = 4
"""Frames of an observation."""


def is_name(name: str) -> bool:
    """True for the ids of ale-py's games that this file can make."""
    return name.startswith("ALE/") or ("NoFrameskip-v" in name and not name.startswith("gym:"))


def preset_hint(config: Config) -> str:
    """One line on what is usual for games, if a game is played with none of that; else empty.

    It names the algorithm's preset, or the settings to give where it has none.
    """
    run, learning = config.run, config.algorithm
    usual = SETTINGS.get(run.algo, {"clip_reward": True} if run.algo in PRESETS else {})
    given = any(getattr(learning, name) == value for name, value in usual.items())
    if not is_name(run.env) or not usual or given:
        return ""
    told = "Atari: these are not the usual settings for games; "
    if run.algo in PRESETS:
        words = f"--preset {PRESETS[run.algo]} --env {shlex.quote(run.env)}"
        return f"{told}{run.algo} gets them by: penstock train {words}"
    words = " ".join(f"--{name} {value}" for name, value in usual.items())
    return f"{told}{run.algo} has no preset for them: give {words}"


def serves(spec: Any) -> bool:
    """True for a game with a fixed number of frames for each action: ``ALE/*-v5`` and ``*NoFrameskip-v*``."""
    return str(spec.entry_point) == "ale_py.env:AtariEnv" and isinstance(spec.kwargs.get("frameskip"), int)


def lanes_of(spec: Any) -> EnvFactory:
    """A factory of vector environments for the game of a Gymnasium spec."""
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
        game: name in snake case, as in ale-py: ``space_invaders``.
        num_envs: lanes.
        repeat_action_probability: how often the last action is taken instead of the given one.
        full_action_space: all 18 actions, also those without an effect in this game.
        max_num_frames_per_episode: frames after which an episode is truncated. The default is half an hour of play.
        episodic_life: an episode ends with each life, and a new game begins.
    """
    from ale_py.vector_env import AtariVectorEnv  # noqa: PLC0415  # takes 0.1 s

    return _Lanes(
        AtariVectorEnv(
            game,
            num_envs,
            # Environment processes already run in parallel.
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
    """Lets the source reset ended lanes, each with a seed. So an episode depends on its seed and its actions alone.

    ale-py itself resets an ended lane in the next step, unless it was reset before, as the source does.
    """

    # A part of Gymnasium's interface. In ale-py, the first observation of an episode is zeros and one frame.
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
