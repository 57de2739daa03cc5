"""Suggests what to type instead of an unknown setting, also for the names that other libraries give to our settings.

A setting may not be given by these names. What a config file understands of RLlib is in ``rllib.py``.
"""

from collections.abc import Collection

from penstock.algorithm_lookup import algorithms_with
from penstock.config.rllib import SAME
from penstock.errors import nearest

__all__ = ["OTHER_NAMES", "unknown"]

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    **{theirs: (own,) for theirs, own in SAME.items()},
    # stable-baselines3 and CleanRL (docs/from-stable-baselines3.md)
    "total_timesteps": ("timesteps",),
    "n_envs": ("num_envs",),
    "learning_rate": ("lr",),
    "policy_lr": ("lr",),
    "q_lr": ("critic_lr",),
    "n_steps": ("n_step", "num_steps"),
    "batch_size": ("mini_batch_size",),
    "minibatch_size": ("mini_batch_size",),
    "n_epochs": ("epochs",),
    "update_epochs": ("epochs",),
    "clip_range": ("clip_param",),
    "clip_coef": ("clip_param",),
    "ent_coef": ("entropy_coef", "temperature"),
    "alpha": ("temperature",),
    "vf_coef": ("value_coef",),
    "norm_adv": ("normalize_advantage",),
    "buffer_size": ("capacity",),
    "learning_starts": ("min_rows",),
    "exploration_initial_eps": ("epsilon_first",),
    "start_e": ("epsilon_first",),
    "exploration_final_eps": ("epsilon_last",),
    "end_e": ("epsilon_last",),
    "exploration_fraction": ("epsilon_fraction",),
    "exploration_noise": ("exploration",),
    "policy_frequency": ("policy_delay",),
    "target_policy_noise": ("smoothing",),
    "policy_noise": ("smoothing",),
    "target_noise_clip": ("smoothing_clip",),
    "noise_clip": ("smoothing_clip",),
    "net_arch": ("hidden_sizes",),
    "activation_fn": ("activation",),
    "env_kwargs": ("env_args",),
    "wrapper_class": ("wrap",),
    # RLlib
    "env_config": ("env_args",),
    # DistributedPPO, and torch
    "steps_per_worker": ("num_steps",),
    "dtype": ("precision",),
}
"""Name elsewhere -> our settings that mean the same. Of several, the first one that the algorithm has."""


def unknown(name: str, known: Collection[str], suggested: Collection[str] = (), dashes: str = "") -> str:
    """What to type instead of an unknown setting, as the end of a sentence; may be empty.

    Args:
        name: the setting.
        known: the settings of the run and of its algorithm.
        suggested: further names that are suggested if they are like ``name``.
        dashes: before each name: those of a flag.
    """
    if others := algorithms_with(name):
        return f" for this algorithm: it is a setting of {others}"
    own = next((own for own in OTHER_NAMES.get(name, ()) if own in known), None)
    if own is not None:
        return f"; it is {dashes}{own} here"
    return nearest(dashes + name, [dashes + other for other in (*known, *suggested)])
