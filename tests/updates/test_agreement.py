"""Every backend of PPO's update against a float64 reference, from the same states of a run; and against itself."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from penstock.algorithms.ppo import fused, learn
from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.ops.losses import mean_by
from penstock.registry import UPDATES, load
from penstock.updates.compiled import CompiledUpdater
from penstock.updates.eager import EagerUpdater
from penstock.updates.fused import FusedUpdater
from penstock.updates.settings import UpdaterSettings
from tests.algorithms.loop import Target, allocate, collect, flat_rows

TASK = Target()
CONFIG = PPOConfig(num_steps=33, mini_batch_size=64, normalize_value=True, lr=1e-3)
SPEC = spec(TASK.spaces, CONFIG)
LANES = 8
BACKENDS = ["eager", pytest.param("compiled", marks=pytest.mark.nightly), "fused"]
"""Compiling PPO's update takes from half a minute to two minutes where no cache has it.

Shorter: ``test_replay.py`` and ``test_updaters.py`` compile small updates.
"""


@pytest.fixture(scope="module")
def rollout():
    """A stream of one slot, filled by the initial policy."""
    torch.set_num_threads(1)
    algorithm = learn.build(TASK.spaces, CONFIG)
    arrays = allocate(TASK.spaces, SPEC, CONFIG.num_steps, LANES)
    collect(TASK, SPEC, algorithm, init_state(TASK.spaces, CONFIG, 0), arrays, np.random.default_rng(0))
    return arrays


def make(backend, arrays, threads=1, parts=1):
    if parts > 1:
        size = SPEC.schedule.mini_batch_size // parts
        spec = replace(SPEC, schedule=replace(SPEC.schedule, mini_batch_size=size))
        learn_by = f"penstock.algorithms.ppo.{'fused' if backend == 'fused' else 'learn'}:build"
        settings = UpdaterSettings(learn_by, CONFIG, spec, TASK.spaces, "cpu", threads, seed=0, accumulate=parts)
        updater = load(UPDATES[backend].stream)(settings, arrays)
        updater.load(init_state(TASK.spaces, CONFIG, 0))
        updater.begin([0], 0.25)
        updater.merge([0])
        return updater
    algorithm = learn.build(TASK.spaces, CONFIG)
    if backend == "fused":
        updater = FusedUpdater(fused.build(TASK.spaces, CONFIG), SPEC, arrays, threads)
    else:
        kind = EagerUpdater if backend == "eager" else CompiledUpdater
        updater = kind(algorithm, UpdaterSettings("", CONFIG, SPEC, TASK.spaces, "cpu", threads, seed=0), arrays)
    updater.load(init_state(TASK.spaces, CONFIG, 0))
    updater.begin([0], 0.25)
    updater.merge([0])
    return updater


def reference(algorithm, state, arrays, indices, weights):
    """One update in float64, from the float32 state."""
    exact = {}
    for name, values in state.items():
        exact[name] = torch.tensor(values, dtype=torch.float64 if values.dtype == np.float32 else None)
    views = {name: values[0] for name, values in arrays.items()}
    targets = algorithm.targets({}, views)
    rows = {"weight": torch.from_numpy(weights).double()}
    for name in SPEC.minibatch:
        flat = targets[name] if name in targets else views[name]
        picked = flat.reshape(-1, *flat.shape[2:])[indices]
        rows[name] = torch.from_numpy(picked).double() if picked.dtype == np.float32 else torch.from_numpy(picked)
    rows |= algorithm.across_minibatch(rows, mean_by(rows["weight"]))
    phase = algorithm.phases[0]
    return {**exact, **phase.apply(exact, phase.gradients(exact, rows, {}).gradients)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_update_agrees_with_float64_along_a_run(backend, rollout):
    updater = make(backend, rollout)
    algorithm = learn.build(TASK.spaces, CONFIG)
    generator = np.random.default_rng(1)
    worst = dict.fromkeys(("actor", "critic"), 0.0)
    for _ in range(12):
        for indices, weights in zip(*flat_rows(rollout, generator, CONFIG.mini_batch_size), strict=True):
            before = {name: values.copy() for name, values in updater.state().items()}
            padded = np.where(weights > 0.0, indices, indices[0])
            expected = reference(algorithm, before, rollout, padded, weights)
            updater.minibatches(indices[None], weights[None])
            after = updater.state()
            assert int(after["adam_step"]) == int(before["adam_step"]) + 1
            for name in worst:
                exact = expected[name].numpy()
                worst[name] = max(worst[name], float(np.linalg.norm(after[name] - exact) / np.linalg.norm(exact)))
    assert worst["actor"] < 1e-5, worst
    assert worst["critic"] < 1e-5, worst


@pytest.mark.parametrize("backend", BACKENDS)
def test_bits_repeat_and_do_not_depend_on_how_calls_are_cut(backend, rollout):
    """LearnerNode cuts an epoch into calls by the clock, so the cuts must not change the result."""
    states = []
    for cuts in ([0, 5], [0, 1, 2, 3, 4, 5], [0, 3, 5]):
        updater = make(backend, rollout)
        generator = np.random.default_rng(2)
        for _ in range(4):
            indices, weights = flat_rows(rollout, generator, CONFIG.mini_batch_size)
            for start, stop in pairwise(cuts):
                updater.minibatches(indices[start:stop], weights[start:stop])
        updater.finish()
        states.append({name: values.tobytes() for name, values in updater.state().items()})
    assert len(indices) == 5
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize("other", BACKENDS[1:])
def test_metrics_agree(other, rollout):
    """Those of eager stand for the truth."""
    found = []
    for backend in ("eager", other):
        updater = make(backend, rollout)
        updater.minibatches(*flat_rows(rollout, np.random.default_rng(3), CONFIG.mini_batch_size))
        found.append(updater.metrics())
    assert set(found[0]) == {"policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm", "lr"}
    assert found[1] == pytest.approx(found[0], rel=1e-3, abs=1e-5)
    assert found[0]["lr"] == pytest.approx(1e-3)


# Shorter than compiled: ``tests/updates/test_replay.py`` hands parts on from compiled libraries.
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_minibatch_in_parts_gives_what_it_gives_whole(backend, rollout):
    """Advantages are normalised over the whole minibatch. The last one of an epoch, 8 rows of 64, has empty parts."""
    whole, parts = make(backend, rollout), make(backend, rollout, parts=4)
    begun = {name: whole.state()[name].copy() for name in ("actor", "critic")}
    indices, weights = flat_rows(rollout, np.random.default_rng(6), CONFIG.mini_batch_size)
    assert weights.sum(1).tolist() == [64.0] * 4 + [8.0]
    for updater in (whole, parts):
        updater.minibatches(indices[3:], weights[3:])
    for name, before in begun.items():
        moved = whole.state()[name] - before
        assert np.linalg.norm(parts.state()[name] - whole.state()[name]) <= 1e-4 * np.linalg.norm(moved), name
    assert int(parts.state()["adam_step"]) == 2
    found, expected = parts.metrics(), whole.metrics()
    linear = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "lr")
    assert [found[name] for name in linear] == pytest.approx([expected[name] for name in linear], rel=1e-3, abs=1e-6)


def test_two_threads_of_the_fused_update_give_the_same_bits(rollout):
    states = []
    for threads in (1, 2):
        updater = make("fused", rollout, threads)
        updater.minibatches(*flat_rows(rollout, np.random.default_rng(4), CONFIG.mini_batch_size))
        states.append({name: values.tobytes() for name, values in updater.state().items()})
    assert states[0] == states[1]


def test_a_state_passes_between_backends(rollout):
    """Each goes on where another stopped: the same arrays, by name, shape and dtype, and the same next update."""
    indices, weights = flat_rows(rollout, np.random.default_rng(5), CONFIG.mini_batch_size)
    begun = make("eager", rollout)
    begun.minibatches(indices, weights)
    begun.finish()
    state = {name: values.copy() for name, values in begun.state().items()}
    after = {}
    for backend in ("eager", "fused"):
        updater = make(backend, rollout)
        updater.load(state)
        updater.begin([0], 0.5)
        updater.merge([0])
        updater.minibatches(indices[:1], weights[:1])
        updater.finish()
        after[backend] = {name: values.copy() for name, values in updater.state().items()}
    shapes = [{name: (part.shape, part.dtype) for name, part in found.items()} for found in after.values()]
    assert shapes[0] == shapes[1]
    for name, values in after["eager"].items():
        assert np.linalg.norm(after["fused"][name] - values) <= 1e-5 * np.linalg.norm(values), name
    for name in ("adam_step", "progress", "value_mean", "value_var", "value_count"):
        np.testing.assert_array_equal(after["fused"][name], after["eager"][name])
