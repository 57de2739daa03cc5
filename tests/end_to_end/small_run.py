"""A small run that several learners share: its lanes split evenly over two and over three of them."""

__all__ = ["LANES", "SMALL", "TURN"]

LANES, STEPS = 6, 16
TURN = LANES * STEPS
"""Rows of a batch. The minibatch is the whole batch, so one learner and several see the same rows in it."""
SMALL = {
    "env": "Pendulum-v1",
    "num_envs": LANES,
    "num_steps": STEPS,
    "hidden_sizes": (8, 8),
    "eval_episodes": 1,
    "mini_batch_size": TURN,
}
