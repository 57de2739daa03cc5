"""Kept episodes as rows of a table: each sampled row is a step of an episode."""

import numpy as np
import pytest

from penstock.kernels.actions import environment_array, from_environment, to_environment
from penstock.program.rollout import table_specs
from penstock.replay.episodes import table_of
from penstock.replay.sampler import Sampler
from penstock.saved_runs.episodes import KeptEpisode
from penstock.types import Box, Discrete, Spaces, Stack

BOX = Box((1,), "float32", (-np.inf,), (np.inf,))


def sampled(table, spaces: Spaces, count: int, n_step: int = 1):
    out = {"action": np.zeros((count, *spaces.action_spec().shape), spaces.action_spec().dtype)}
    for spec in spaces.obs_specs():
        for name in (spec.name, f"next.{spec.name}"):
            out[name] = np.zeros((count, *spec.shape), spec.dtype)
    out |= {name: np.zeros(count, np.float32) for name in ("reward", "discount")}
    sampler = Sampler(table, 1, ("obs",), n_step=n_step, gamma=0.5, stack=spaces.stacks())
    sampler.sample((1, 1), out)
    return out


def episode(first: float, steps: int, *, terminated: bool = True, vanished: bool = False) -> KeptEpisode:
    """Observations first, first + 1, ...; the reward of each step is ten times its observation."""
    obs = np.arange(first, first + steps + (not vanished), dtype=np.float32)[:, None]
    action = np.arange(steps) % 2 + 5
    reward = 10.0 * obs[: steps - vanished, 0]
    return KeptEpisode("g", {"obs": obs}, action, reward.astype(np.float32), terminated, vanished)


def test_rows_are_the_steps_of_the_episodes_also_across_slots() -> None:
    spaces = Spaces((("obs", BOX),), Discrete(2, 5))
    episodes = [
        episode(100, 5),
        episode(200, 3, terminated=False),
        episode(300, 4, terminated=False, vanished=True),
        episode(400, 1, terminated=False, vanished=True),
    ]
    specs = table_specs(spaces, (), 4, 1, same_step=False)
    found = sampled(table_of(episodes, spaces, Discrete(2, 5), specs), spaces, 600)
    rows = {
        (*row[:2], *row[2:])
        for row in zip(
            found["obs"][:, 0].tolist(),
            found["action"].tolist(),
            found["reward"].tolist(),
            found["next.obs"][:, 0].tolist(),
            found["discount"].tolist(),
            strict=True,
        )
    }
    wanted = set()
    for first, steps, terminated in ((100, 5, True), (200, 3, False), (300, 3, False)):
        for t in range(steps):
            is_end = terminated and t == steps - 1
            # After a terminated row the next observation does not count.
            following = {row[3] for row in rows if row[0] == first + t} if is_end else {first + t + 1.0}
            wanted |= {(first + t, t % 2, 10.0 * (first + t), one, 0.0 if is_end else 0.5) for one in following}
    assert rows == wanted


def test_rewards_of_several_steps_are_summed_up_to_the_end_of_their_episode() -> None:
    spaces = Spaces((("obs", BOX),), Discrete(2, 5))
    specs = table_specs(spaces, (), 2, 1, same_step=False)
    table = table_of([episode(1, 3), episode(10, 3)], spaces, Discrete(2, 5), specs)
    found = sampled(table, spaces, 200, n_step=2)
    rewards = {obs: reward for (obs,), reward in zip(found["obs"].tolist(), found["reward"].tolist(), strict=True)}
    assert rewards == {1.0: 20.0, 2.0: 35.0, 3.0: 30.0, 10.0: 155.0, 11.0: 170.0, 12.0: 120.0}


def test_stacks_are_put_together_from_the_frames_of_their_own_episode() -> None:
    frames = Box((2, 1), "float32", (-np.inf,), (np.inf,), Stack(2, "first"))
    spaces = Spaces((("obs", frames),), Discrete(2, 5))
    plain = [episode(100, 3), episode(200, 5)]
    stacked = [
        one._replace(
            obs={"obs": np.stack([np.concatenate([one.obs["obs"][:1], one.obs["obs"][:-1]]), one.obs["obs"]], 1)}
        )
        for one in plain
    ]
    specs = table_specs(spaces, (), 3, 1, same_step=False)
    found = sampled(table_of(stacked, spaces, Discrete(2, 5), specs), spaces, 300)
    pairs = {tuple(pair) for pair in found["obs"][:, :, 0].tolist()}
    wanted = {(100, 100), (100, 101), (101, 102), (200, 200), *((200 + t, 201 + t) for t in range(4))}
    assert pairs == wanted


@pytest.mark.parametrize(
    "space",
    [
        Discrete(4, 3),
        Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0)),
        Box((2,), "float32", (-np.inf, -np.inf), (np.inf, np.inf)),
        Box((3,), "int64", (0.0,), (2.0,)),
    ],
)
def test_actions_of_an_environment_become_those_of_rows(space) -> None:
    generator = np.random.default_rng(0)
    if isinstance(space, Discrete):
        stored = generator.integers(0, space.n, 8)
    elif space.dtype == "int64":
        stored = generator.integers(-1, 2, (8, 3)).astype(np.float32)
    else:
        stored = generator.uniform(-1, 1, (8, 2)).astype(np.float32)
    given = to_environment(stored, space, environment_array(space, 8))
    found = from_environment(given, space)
    assert found.dtype == stored.dtype
    np.testing.assert_allclose(found, stored, atol=1e-6)
