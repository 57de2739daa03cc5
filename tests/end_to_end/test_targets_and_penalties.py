"""APPO's target network and the penalty on the divergence in whole runs: resumed, and with several learners."""

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import ConfigError
from penstock.nodes.learner.penalty import MOST
from penstock.run import Result
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.fingerprints import fingerprint

pytestmark = pytest.mark.usefixtures("shared_templates")

LANES, STEPS = 4, 16
BATCH = LANES * STEPS
BOTH = {"target_every": 3, "kl_coef": 0.5, "kl_target": 1e-3}
SMALL = {
    "algo": "appo",
    "env": "Pendulum-v1",
    "num_envs": LANES,
    "num_workers": 2,
    "num_steps": STEPS,
    "hidden_sizes": (8, 8),
    "mini_batch_size": 32,
    "epochs": 2,
    "backend": "eager",
    "sync_mode": "blocking",
    "eval_episodes": 1,
    **BOTH,
}


def train(log_dir: Path, updates: int, **settings: object) -> Result:
    return penstock.train({**SMALL, "log_dir": str(log_dir), "timesteps": updates * BATCH, **settings}, quiet=True)


def arrays(result: Result) -> dict[str, np.ndarray]:
    return load_checkpoint(find_checkpoint(result.run_folder)).arrays


@pytest.mark.parametrize(
    "settings",
    [
        {"normalize_obs": True, "normalize_value": True},
        {"model": "lstm", "memory_size": 4},
        {"precision": "bfloat16"},
        {"env": "benchmarks.learning.tasks:MaskedAimEnv"},
        {"algo": "ppo"},
    ],
    ids=["normalised", "memory", "bfloat16", "masks", "ppo"],
)
def test_a_resumed_run_has_the_target_and_the_weight_of_one_that_was_not_cut(tmp_path, settings) -> None:
    """The cut is after 3 batches, of 4 gradient steps each. The target is copied at every third."""
    whole_run = {**SMALL, **settings, "runtime": "inline"}
    if whole_run["algo"] == "ppo":
        del whole_run["target_every"]

    def run(place: str, updates: int) -> Result:
        values = {**whole_run, "log_dir": str(tmp_path / place), "timesteps": updates * BATCH}
        return penstock.train(values, quiet=True)

    whole, first = run("whole", 7), run("parts", 3)
    before = arrays(first)
    second = penstock.resume(first.run_folder, timesteps=7 * BATCH, quiet=True)
    assert fingerprint(second) == fingerprint(whole)
    found = arrays(whole)
    # The weight has doubled or halved in each batch in which it did not stay.
    assert float(np.log2(found["kl_coef"] / 0.5)).is_integer()
    assert found["kl_coef"] != 0.5
    if whole_run["algo"] == "appo":
        steps = int(found["gradient_steps"])
        assert steps == 7 * 2 * 2
        # The last step that copied had the number 3k, counted from 0; no step came after it only if steps is 3k + 1.
        assert np.array_equal(found["target.actor"], found["actor"]) == (steps % 3 == 1)
        assert not np.array_equal(found["target.actor"], before["target.actor"])


@pytest.mark.parametrize("agree", [{}, {"exchange": "parameter_server", "pace": "sync"}], ids=["allreduce", "served"])
def test_two_learners_with_a_share_each_are_one_learner_with_all_rows(tmp_path, agree) -> None:
    """Each minibatch is the whole batch, so one learner and two see the same rows in it."""
    settings = {"mini_batch_size": BATCH, "epochs": 4, "normalize_obs": True, "normalize_value": True}
    one = arrays(train(tmp_path, 4, **settings, runtime="inline"))
    two = arrays(train(tmp_path, 4, **settings, learners=2, **agree))
    assert one["gradient_steps"] == two["gradient_steps"] == 16
    assert one["kl_coef"] == two["kl_coef"] != 0.5
    for name in ("actor", "critic", "target.actor", "target.critic", "target.obs_mean", "target.value_mean"):
        np.testing.assert_allclose(two[name], one[name], rtol=2e-4, atol=2e-5, err_msg=name)
    # The last copy was made with the 16th step, which has the number 15.
    np.testing.assert_array_equal(two["target.actor"], two["actor"])


@pytest.mark.nightly  # It compiles three libraries. Shorter: every other run here is eager.
def test_the_compiled_update_copies_and_adapts_like_the_eager_one(tmp_path) -> None:
    eager, compiled = (arrays(train(tmp_path, 4, runtime="inline", backend=one)) for one in ("eager", "compiled"))
    assert eager["gradient_steps"] == compiled["gradient_steps"] == 16
    assert eager["kl_coef"] == compiled["kl_coef"] != 0.5
    for name in ("actor", "critic", "target.actor", "target.critic"):
        np.testing.assert_allclose(compiled[name], eager[name], rtol=1e-3, atol=1e-4, err_msg=name)
    assert np.array_equal(compiled["target.actor"], compiled["actor"])


@pytest.mark.parametrize(
    "agree",
    [{"exchange": "gossip"}, {"exchange": "parameter_server", "pace": "async"}, {"exchange": "hogwild"}],
    ids=["gossip", "served", "hogwild"],
)
def test_learners_that_agree_in_other_ways_copy_and_adapt(tmp_path, agree) -> None:
    apart = {} if agree["exchange"] == "gossip" else {"sync_mode": "non_blocking"}
    # Any step that moves the policy moves it further than this.
    found = arrays(train(tmp_path, 8, learners=2, kl_target=1e-9, **apart, **agree))
    assert 0.5 < found["kl_coef"] <= MOST
    assert int(found["gradient_steps"]) > 8
    first = arrays(train(tmp_path, 1, runtime="inline", target_every=10**6))
    # The first step copies, and later ones have done so again.
    assert not np.array_equal(found["target.actor"], first["target.actor"])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"kl_coef": 0.0}, r"--kl_target 0\.001 doubles or halves --kl_coef, which is 0; give --kl_coef 0\.2"),
        ({"target_every": -1}, "target_every takes a whole number of at least 0, not -1"),
        ({"kl_coef": -1.0}, "kl_coef takes a number of at least 0, not -1"),
        ({"algo": "ppo"}, "unknown setting target_every for this algorithm: it is a setting of"),
        ({"algo": "impala"}, "unknown setting "),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, settings, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        train(tmp_path, 1, **settings)


def test_a_resume_keeps_what_its_checkpoints_depend_on(tmp_path) -> None:
    run = train(tmp_path, 1, runtime="inline").run_folder
    for name, value in (("target_every", 0), ("kl_target", 0.0)):
        with pytest.raises(ConfigError, match=rf"{name} cannot become 0[.0]*: .* its checkpoints hold"):
            penstock.resume(run, timesteps=2 * BATCH, settings={name: value}, quiet=True)


def test_a_resume_says_that_the_weight_goes_on_from_its_checkpoint(tmp_path) -> None:
    run = train(tmp_path, 1, runtime="inline").run_folder
    said = "--kl_coef 9 changes nothing: the checkpoint holds the weight that --kl_target 0.001 adapts"
    for settings, told in ({"kl_coef": 9.0}, True), ({}, False):
        result = penstock.resume(run, timesteps=(2 if told else 3) * BATCH, settings=settings, quiet=True)
        assert (said in result.notes) == told
        assert arrays(result)["kl_coef"] < 9
