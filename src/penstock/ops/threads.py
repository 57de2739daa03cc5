"""How torch computes in a learner's process."""

import torch

__all__ = ["compute_with"]


def compute_with(threads: int) -> None:
    """Use so many threads, this one among them, and take numbers below 1.2e-38 for 0.

    Moments of weights that get no gradient any more halve every seven steps until they are that small, and a processor
    handles such numbers one by one: a step of Adam took 128 us instead of 18 where a quarter of the moments was (DQN on
    CartPole-v1, two layers of 128).
    """
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
