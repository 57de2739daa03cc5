"""Settings of a run from a small replay table of stacks of frames, on a film of `tests.environments` or one like it."""

FILM_TABLE = {
    "algo": "dqn",
    "lr_schedule": "constant",
    "num_envs": 4,
    "num_steps": 8,
    "num_workers": 2,
    "mini_batch_size": 16,
    "updates_per_step": 0.125,
    "min_rows": 60,
    "capacity": 192,
    "hidden_sizes": (8, 8),
    "epsilon_first": 0.4,
    "epsilon_last": 0.4,
    "eval_episodes": 0,
    "runtime": "inline",
}
