"""Which machine runs which environment nodes: by cores, in lane order. Knows no cluster."""

from collections.abc import Sequence

__all__ = ["shares"]


def shares(count: int, cores: Sequence[float]) -> list[int]:
    """How many of ``count`` processes each machine gets, in proportion to its cores.

    Args:
        count: processes to spread.
        cores: of each machine. A machine with none gets no process.

    Returns:
        One number for each machine. All go to the first machine if no machine has a core.
    """
    total = sum(cores)
    if not total:
        return [count, *(0 for _ in cores[1:])]
    exact = [count * own / total for own in cores]
    given = [int(part) for part in exact]
    # The largest remainders get what is left; among equal ones the first.
    order = sorted(range(len(cores)), key=lambda index: (given[index] - exact[index], index))
    for index in order[: count - sum(given)]:
        given[index] += 1
    return given
