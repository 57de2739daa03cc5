"""Seeds of episodes: three streams without common seeds, and validation seeds that never change."""

import itertools

from penstock.seeding import episode_seed, final_seed, validation_seed

LANES, EPISODES = 64, 300


def streams(seed: int) -> list[set[int]]:
    """The seeds of 19,200 training episodes, and of 3,000 validation and 3,000 test episodes each."""
    training = {episode_seed(seed, lane, episode) for lane in range(LANES) for episode in range(EPISODES)}
    return [
        training,
        *({seed_of(seed, number) for number in range(3_000)} for seed_of in (validation_seed, final_seed)),
    ]


def test_no_episode_is_of_two_streams() -> None:
    for seed in (0, 1, 2**63 - 1):
        for one, other in itertools.combinations(streams(seed), 2):
            assert not one & other


def test_seeds_are_what_every_environment_accepts() -> None:
    assert all(0 <= seed < 2**31 for stream in streams(7) for seed in stream)


def test_evaluations_on_the_way_keep_their_episodes() -> None:
    # A resumed run compares with its earlier evaluations, so their seeds must stay the same.
    assert [validation_seed(0, number) for number in range(3)] == [episode_seed(0, 2**20 + i, 0) for i in range(3)]
