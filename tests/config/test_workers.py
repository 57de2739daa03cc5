import pytest

from penstock.config.workers import auto_num_workers, check_agents, check_num_workers, num_workers_of_cluster
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("num_envs", "cores", "workers"),
    [
        (8, 1, 1),
        (8, 2, 2),
        (8, 4, 4),
        (8, 16, 8),
        (64, 4, 4),
        (64, 16, 16),
        (1, 16, 1),
        # lowered until it divides num_envs
        (8, 3, 2),
        (8, 6, 4),
        (6, 4, 3),
        (7, 4, 1),
        (9, 16, 9),
    ],
)
def test_in_lock_step_every_core_steps_environments(num_envs, cores, workers):
    assert auto_num_workers(num_envs, cores, lock_step=True) == workers


@pytest.mark.parametrize(
    ("num_envs", "cores", "workers"),
    [
        # cores - 2, and 2 on 2 cores
        (8, 1, 1),
        (8, 2, 2),
        (8, 3, 1),
        (8, 4, 2),
        (8, 6, 4),
        (8, 16, 8),
        (64, 16, 8),
        # lowered until it divides num_envs
        (60, 16, 12),
        (6, 6, 3),
        (5, 2, 1),
    ],
)
def test_where_learning_overlaps_two_cores_are_left_to_the_rest(num_envs, cores, workers):
    assert auto_num_workers(num_envs, cores, lock_step=False) == workers


@pytest.mark.parametrize(
    ("num_envs", "cores", "sharing", "workers"),
    [
        (256, 64, 1, 32),
        (51, 64, 1, 51),
        (50, 64, 1, 50),
        (8, 64, 1, 8),
        (8, 1, 1, 1),
        # Four learners with a quarter of 12.8 cores each.
        (64, 16, 4, 8),
    ],
)
def test_on_several_machines_environments_get_four_fifths_of_all_cores(num_envs, cores, sharing, workers):
    assert num_workers_of_cluster(num_envs, cores, sharing=sharing) == workers


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


def test_an_environment_with_several_agents_has_one_process():
    """24 lanes of 3 agents are 8 environments: 5 cores can have 4 of them in lock step."""
    assert auto_num_workers(24, 5, lock_step=True, agents=3) == 4
    assert auto_num_workers(24, 5, lock_step=True, agents=3, sharing=2) == 4
    check_agents("test", 3, 24, 4)
    with pytest.raises(ConfigError, match="a multiple of 3 times --num_workers, such as --num_envs 30"):
        check_agents("test", 3, 24, 5)
