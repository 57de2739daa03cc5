"""What is judged, and that both sides have the same sizes. Nothing is trained here."""

import gymnasium
import numpy as np

from benchmarks.peers.install import HERE
from benchmarks.peers.stateless_cartpole import make_env
from benchmarks.recurrent import BATCH, PEERS, SETTING, WAYS, judged


def test_each_side_is_judged_by_the_best_median() -> None:
    found = {name: [100.0] * 3 for name in WAYS} | {name: [20.0] * 3 for name in PEERS}
    # Medians 150 and 60; the means would be 200 and 40.
    found[list(WAYS)[1]] = [100.0, 150.0, 350.0]
    found[list(PEERS)[-1]] = [0.0, 60.0, 60.0]
    assert (judged(found).value, judged(found).holds) == (2.5, False)


def test_a_batch_is_that_of_the_setting() -> None:
    assert SETTING["num_envs"] * SETTING["num_steps"] == BATCH


def test_the_peer_has_a_script_with_these_flags_and_its_versions() -> None:
    script = (HERE / "sb3_recurrent.py").read_text()
    assert all(f'"--{name}"' in script for name in (*SETTING, "shared", "threads", "updates"))
    lines = (HERE / "requirements-sb3-recurrent.txt").read_text().splitlines()
    assert all("==" in line for line in lines if not line.startswith("#"))


def test_the_environment_shows_positions_only() -> None:
    hidden, whole = make_env(), gymnasium.make("CartPole-v1")
    assert hidden.observation_space.shape == (2,)
    np.testing.assert_array_equal(hidden.reset(seed=3)[0], whole.reset(seed=3)[0][[0, 2]])
    np.testing.assert_array_equal(hidden.step(1)[0], whole.step(1)[0][[0, 2]])
