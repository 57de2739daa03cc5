"""How many processes a run gets: pure functions of the machine and of ``num_envs``."""

from penstock.errors import ConfigError

__all__ = ["auto_num_workers", "check_num_workers"]


def auto_num_workers(num_envs: int, cores: int) -> int:
    """``min(4, num_envs, max(1, cores - 2))``, and 2 on 2 cores; lowered until it divides ``num_envs``.

    Args:
        num_envs: lanes of the run.
        cores: cores that this process may run on.
    """
    wanted = min(4, num_envs, 2 if cores == 2 else max(1, cores - 2))
    return max(count for count in range(1, wanted + 1) if num_envs % count == 0)


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
