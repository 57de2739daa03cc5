"""How many processes a run gets: pure functions of the machine and of ``num_envs``."""

from penstock.errors import ConfigError

__all__ = ["auto_num_workers", "check_num_workers"]

OVERLAP_CORES = 2
"""Cores for learner, evaluator and the rest where they work beside the environments."""


def auto_num_workers(num_envs: int, cores: int, *, lock_step: bool) -> int:
    """The most processes that have a core each, lowered until they divide ``num_envs``.

    In lock step the learner waits while environments are stepped, so every core is theirs. Where collection overlaps
    learning two cores are left to the rest, beyond the first two.

    Args:
        num_envs: lanes of the run.
        cores: cores that this process may run on.
        lock_step: whether collection and learning take turns.
    """
    wanted = cores if lock_step or cores <= OVERLAP_CORES else cores - OVERLAP_CORES
    return max(count for count in range(1, min(wanted, num_envs) + 1) if num_envs % count == 0)


def check_num_workers(num_workers: int, num_envs: int) -> None:
    """Lanes are split evenly.

    Raises:
        ConfigError: ``num_workers`` does not divide ``num_envs``; the text names the nearest that does.
    """
    if num_envs % num_workers:
        divisors = [count for count in range(1, num_envs + 1) if num_envs % count == 0]
        best = min(divisors, key=lambda count: (abs(count - num_workers), count))
        raise ConfigError(
            f"--num_workers {num_workers} does not divide --num_envs {num_envs}; the nearest that does is {best}"
        )
