"""Learners of a stream that compute the gradients of a share each, and the applier: together they are one updater."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from penstock.algorithms.ppo import learn
from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.registry import UPDATES, load
from penstock.updates.eager import EagerUpdater, build_stream_applier
from penstock.updates.settings import UpdaterSettings
from tests.algorithms.loop import Target, allocate, collect, flat_rows
from tests.updates import counting

TASK = Target()
CONFIG = PPOConfig(num_steps=12, mini_batch_size=24, normalize_obs=True, normalize_value=True, lr=1e-3)
SPEC = spec(TASK.spaces, CONFIG)
LANES = 6
BOTH = pytest.mark.parametrize("backend", ["eager", "fused"])


@pytest.fixture(scope="module")
def rollout():
    """A stream of one slot, filled by the initial policy."""
    torch.set_num_threads(1)
    algorithm = learn.build(TASK.spaces, CONFIG)
    arrays = allocate(TASK.spaces, SPEC, CONFIG.num_steps, LANES)
    collect(TASK, SPEC, algorithm, first_state(), arrays, np.random.default_rng(0))
    return arrays


def settings(size: int, backend: str = "eager", **changed: object) -> UpdaterSettings:
    cut = replace(SPEC, schedule=replace(SPEC.schedule, mini_batch_size=size))
    functions = f"penstock.algorithms.ppo.{'fused' if backend == 'fused' else 'learn'}:build"
    return UpdaterSettings(functions, CONFIG, cut, TASK.spaces, "cpu", 1, seed=0, **changed)


def first_state():
    return init_state(TASK.spaces, CONFIG, 0)


def shares(arrays, weights, backend: str, size: int, sharing: int, accumulate: int = 1):
    """The gradient and weight of each learner's share of one minibatch, whose rows have these weights."""
    indices, _ = flat_rows(arrays, np.random.default_rng(1), CONFIG.mini_batch_size)
    found = []
    for learner in range(sharing):
        handed_on = []
        part = settings(size, backend, learner=learner, sharing=sharing, accumulate=accumulate)
        follower = load(UPDATES[backend].stream_follower)(
            part,
            arrays,
            lambda phase, gradients, weight, into=handed_on: into.append(
                ({name: values.copy() for name, values in gradients.items()}, weight)
            ),
        )
        follower.load(first_state())
        follower.begin([0], 0.5)
        follower.minibatches(indices[:1], weights[None])
        (one,) = handed_on
        found.append(one)
    return found


@BOTH
@pytest.mark.parametrize("padded", [0, 5, 8])
def test_the_weighted_mean_of_the_shares_is_the_gradient_of_the_whole_minibatch(
    rollout, backend: str, padded: int
) -> None:
    """24 rows for three learners. The last one's rows may be padding, in part or all. Advantages are normalised."""
    weights = np.ones(24, np.float32)
    weights[24 - padded :] = 0.0
    ((whole, total),) = shares(rollout, weights, "eager", 24, 1)
    parts = shares(rollout, weights, backend, 8, 3)
    assert [weight for _, weight in parts] == [8.0, 8.0, 8.0 - padded]
    assert total == 24.0 - padded
    for name, gradient in whole.items():
        mean = sum(weight / total * found[name] for found, weight in parts)
        np.testing.assert_allclose(mean, gradient, rtol=1e-4, atol=1e-6)
        assert np.linalg.norm(gradient) > 1e-3


@BOTH
def test_a_share_in_parts_is_the_share(rollout, backend: str) -> None:
    weights = np.ones(24, np.float32)
    in_parts = shares(rollout, weights, backend, 6, 2, 2)
    for whole, parts in zip(shares(rollout, weights, "eager", 12, 2), in_parts, strict=True):
        assert whole[1] == parts[1] == 12.0
        for name, gradient in whole[0].items():
            np.testing.assert_allclose(parts[0][name], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["eager", "fused", pytest.param("compiled", marks=pytest.mark.nightly)])
def test_who_finds_steps_nothing_and_who_applies_does_what_one_learner_does(rollout, backend: str) -> None:
    one = EagerUpdater(learn.build(TASK.spaces, CONFIG), settings(24), rollout)
    build_follower, build_applier = (
        load(of) for of in (UPDATES[backend].stream_follower, UPDATES[backend].stream_applier)
    )
    applier = build_applier(settings(24, backend), rollout)
    handed_on = []
    follower = build_follower(
        settings(24, backend), rollout, lambda phase, gradients, weight: handed_on.append({phase: gradients})
    )
    for part in (one, applier):
        part.load(first_state())
    one.begin([0], 0.5)
    for part in (one, applier):
        part.merge([0])
    follower.load(applier.state())
    follower.begin([0], 0.5)
    indices, weights = flat_rows(rollout, np.random.default_rng(2), CONFIG.mini_batch_size)
    for part in (one, follower):
        part.minibatches(indices[:1], weights[:1])
    assert follower.state()["actor"].tobytes() == first_state()["actor"].tobytes()
    applier.apply(handed_on[0], 0.5)
    for part in (one, applier):
        part.finish()
    expected, found = one.state(), applier.state()
    assert int(found["adam_step"]) == 1
    assert not np.array_equal(found["value_mean"], first_state()["value_mean"])
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-6, err_msg=name)


@BOTH
def test_statistics_that_change_within_a_batch_count_from_the_next_minibatch_on(rollout, backend: str) -> None:
    """As where another learner ends its batch: gradients are those of a learner that knew them from the beginning."""
    changed = first_state()
    changed |= {"value_mean": np.array(3.0), "value_var": np.array(9.0)}
    changed |= {"obs_mean": changed["obs_mean"] + 0.5, "obs_var": changed["obs_var"] * 4.0}
    indices, weights = flat_rows(rollout, np.random.default_rng(1), CONFIG.mini_batch_size)
    found = {}
    for when in ("before", "within"):
        handed_on = []
        follower = load(UPDATES[backend].stream_follower)(
            settings(24, backend),
            rollout,
            lambda phase, gradients, weight, into=handed_on: into.append(
                {name: values.copy() for name, values in gradients.items()}
            ),
        )
        follower.load(changed if when == "before" else first_state())
        follower.begin([0], 0.5)
        follower.load(changed)
        follower.minibatches(indices[:1], weights[:1])
        (found[when],) = handed_on
    for name, gradient in found["before"].items():
        assert gradient.tobytes() == found["within"][name].tobytes()


def test_a_phase_without_gradients_runs_where_the_others_are_applied() -> None:
    """The second phase of `counting` has none. It counts its own runs, at every second step."""
    learned = "tests.updates.counting:build"
    applier = build_stream_applier(replace(counting.settings(4), learn=learned), counting.stream())
    applier.load({"ran": np.zeros(2, np.float32), "seen": np.zeros(counting.ROWS, np.float32)})
    for _ in range(2):
        applier.apply({"count": {"seen": np.ones(counting.ROWS, np.float32)}}, 0.0)
    assert applier.state()["ran"].tolist() == [2.0, 1.0]
