import pytest

from penstock.config.workers import auto_num_workers, check_num_workers
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("num_envs", "cores", "workers"),
    [
        # min(4, num_envs, max(1, cores - 2)), and 2 on 2 cores
        (8, 1, 1),
        (8, 2, 2),
        (8, 3, 1),
        (8, 4, 2),
        (8, 6, 4),
        (8, 16, 4),
        (8, 128, 4),
        (1, 2, 1),
        (1, 16, 1),
        (2, 16, 2),
        # lowered until it divides num_envs
        (6, 16, 3),
        (7, 16, 1),
        (9, 16, 3),
        (5, 2, 1),
    ],
)
def test_auto_leaves_cores_to_the_rest_and_divides_the_lanes(num_envs, cores, workers):
    assert auto_num_workers(num_envs, cores) == workers


@pytest.mark.parametrize(
    ("num_workers", "num_envs", "nearest"),
    [(3, 8, 2), (5, 8, 4), (7, 8, 8), (16, 8, 8), (4, 9, 3), (100, 7, 7)],
)
def test_workers_that_do_not_divide_the_lanes_are_refused_with_the_nearest_that_do(num_workers, num_envs, nearest):
    with pytest.raises(ConfigError, match=rf"--num_workers {num_workers} .*--num_envs {num_envs}.* is {nearest}$"):
        check_num_workers(num_workers, num_envs)


def test_workers_that_divide_the_lanes_pass():
    for count in (1, 2, 4, 8):
        check_num_workers(count, 8)
