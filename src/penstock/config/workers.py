"""The number of environment processes: pure functions of the cores and of ``num_envs``."""

from penstock.errors import ConfigError

__all__ = [
    "auto_num_workers",
    "check_agents",
    "check_lanes",
    "check_num_workers",
    "check_sharing",
    "largest_divisor",
    "num_workers_of_cluster",
]

OVERLAP_CORES = 2
"""Cores for learner, evaluator and the rest, if they work at the same time as the environments."""

_CLUSTER_SHARE = 0.8
"""Share of the cores of a cluster of several machines for environments. The rest is for learners, Ray and the like."""


def auto_num_workers(num_envs: int, cores: int, *, lock_step: bool, sharing: int = 1, agents: int = 1) -> int:
    """One process for each core, lowered until the number divides the environments.

    In lock step the learner waits while environments are stepped, so the environments get all cores. If collection
    overlaps learning, two cores are left for the learner and the rest, unless there are only two.

    Args:
        num_envs: lanes of the run, as `check_lanes` wants them.
        cores: cores that this process may run on.
        lock_step: collection and learning take turns.
        sharing: learners that own an equal share of the processes each. There are at least as many processes.
        agents: lanes of one environment, which have one process.
    """
    wanted = cores if lock_step or cores <= OVERLAP_CORES else cores - OVERLAP_CORES
    return _split(num_envs, wanted, sharing, agents)


def num_workers_of_cluster(num_envs: int, cores: int, *, sharing: int = 1, agents: int = 1, asked: float = 1.0) -> int:
    """As `auto_num_workers` on several machines, with four fifths of all their cores, also in lock step.

    ``asked``: cores that each process asks for. One that asks for less than 1 counts as one core.
    """
    return _split(num_envs, int(_CLUSTER_SHARE * cores / max(1.0, asked)), sharing, agents)


def _split(num_envs: int, wanted: int, sharing: int, agents: int) -> int:
    # The processes of each learner split its share of the environments.
    return sharing * largest_divisor(num_envs // (sharing * agents), max(wanted // sharing, 1))


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most ``most``. Both are at least 1."""
    return max(count for count in range(1, min(most, number) + 1) if number % count == 0)


def check_lanes(num_envs: int, sharing: int, agents: int) -> None:
    """Check that the lanes can be split evenly over the learners that share them.

    Args:
        num_envs: lanes of the run.
        sharing: learners that own an equal share of the lanes each.
        agents: lanes of one environment, which belong to one learner.

    Raises:
        ConfigError: they cannot; the text names the nearest number of lanes that can.
    """
    share = sharing * agents
    if left := num_envs % share:
        below = num_envs - left
        nearest = below if below and left < share - left else below + share
        raise ConfigError(
            f"--num_envs {num_envs} cannot be split evenly over --learners {sharing}: each owns a share of the lanes; "
            f"give --num_envs {nearest}"
        )


def check_sharing(num_workers: int, sharing: int) -> None:
    """Check that the environment processes can be split evenly over the learners that share the lanes.

    Raises:
        ConfigError: they cannot.
    """
    if num_workers % sharing:
        raise ConfigError(
            f"--num_workers {num_workers} cannot be split evenly over --learners {sharing}: each owns a share of the "
            f"environment processes; give a multiple of {sharing}"
        )


def check_num_workers(num_workers: int, num_envs: int) -> None:
    """Check that the lanes can be split evenly.

    Raises:
        ConfigError: ``num_workers`` does not divide ``num_envs``; the text names the nearest number that does.
    """
    if num_envs % num_workers:
        divisors = [count for count in range(1, num_envs + 1) if num_envs % count == 0]
        best = min(divisors, key=lambda count: (abs(count - num_workers), count))
        raise ConfigError(
            f"--num_workers {num_workers} does not divide --num_envs {num_envs}; the nearest number that does is {best}"
        )


def check_agents(name: str, agents: int, num_envs: int, num_workers: int) -> None:
    """Check that each process can have whole environments.

    Args:
        name: of the environment, for the error's text.
        agents: lanes of one environment.
        num_envs: lanes of the run.
        num_workers: environment processes; 1 if their number is not decided yet.

    Raises:
        ConfigError: an environment would have its agents in two processes, or too few lanes.
    """
    whole = agents * num_workers
    if num_envs % whole:
        raise ConfigError(
            f"--num_envs {num_envs} counts lanes, and {name} has {agents} agents, a lane each: give a multiple of "
            f"{agents} times --num_workers, such as --num_envs {-(-num_envs // whole) * whole}"
        )
