"""What must hold for every algorithm that learns from a table."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch

from penstock.algorithm import ReplaySchedule
from penstock.algorithm_lookup import find_algorithm
from penstock.algorithms.off_policy.spec import ReplayConfig
from penstock.errors import SpaceError
from penstock.nodes.learner.gradient_slot import METRICS
from penstock.nodes.learner.losses import loss_values
from penstock.registry import ALGORITHMS, load
from penstock.types import Box, Stack
from tests.algorithms.replay_rows import CONTINUOUS, DISCRETE, UNBOUNDED, minibatch_of, noise_of, state_of

NAMES = [name for name in ALGORITHMS.names() if issubclass(find_algorithm(name).config, ReplayConfig)]
SMALL = {"hidden_sizes": (5, 4), "min_rows": 7, "mini_batch_size": 16, "capacity": 99, "updates_per_step": 0.5}


def spaces_of(name):
    return DISCRETE if "discrete" in find_algorithm(name).actions else CONTINUOUS


def made(name, **settings):
    entry = find_algorithm(name)
    config = entry.config(**SMALL | settings)
    return config, load(entry.spec)(spaces_of(name), config), load(entry.learn)(spaces_of(name), config)


def first_state(name, config, seed=1):
    return load(find_algorithm(name).initial)(spaces_of(name), config, seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_says_what_the_config_says(name):
    config, spec, _ = made(name, gamma=0.8, num_steps=3, reuse=2.0)
    assert spec.topology in {"off_policy", "async_off_policy"}
    # 16 rows are less than a sequence of 32, and there is at least one.
    assert spec.schedule == ReplaySchedule(16 if spec.unit == "row" else 1, 0.5, 7, 2.0)
    assert (spec.table.capacity, spec.table.gamma) == (99, 0.8)
    assert spec.warmup in {0, 7}
    assert spec.targets == ()
    assert not spec.policy.gives_value
    read = {"row": {"next.obs", "discount"}, "lane": {"first", "terminated", "valid"}}
    assert {"obs", "action", "reward", *read[spec.unit]} <= set(spec.minibatch)
    assert [part.name for part in spec.sampled(spaces_of(name))] == [*spec.minibatch, "weight"]
    assert config.num_steps == 3


@pytest.mark.parametrize("name", NAMES)
def test_the_initial_state_has_the_arrays_of_the_spec(name):
    config, spec, built = made(name)
    state = first_state(name, config, 7)
    specs = {part.name: (part.shape, part.dtype) for part in spec.state}
    assert len(specs) == len(spec.state)
    assert {key: (values.shape, str(values.dtype)) for key, values in state.items()} == specs
    again, other = first_state(name, config, 7), first_state(name, config, 8)
    assert all(again[key].tobytes() == values.tobytes() for key, values in state.items())
    assert not np.array_equal(state["actor"], other["actor"])
    followed = [key.removeprefix("target.") for key in state if key.startswith("target.")]
    assert followed
    for key in followed:
        assert np.array_equal(state[key], state[f"target.{key}"])
        # A run must not begin with two names of one array.
        assert not np.shares_memory(state[key], state[f"target.{key}"])
    assert set(spec.published()) <= set(spec.state)
    counted = any(phase.every != 1 for phase in built.phases)
    assert ("gradient_steps" in state) >= counted


@pytest.mark.parametrize("name", NAMES)
def test_every_hyper_parameter_says_what_moves(name):
    for field in dataclasses.fields(find_algorithm(name).config):
        assert len(field.metadata["help"]) > 20, field.name
        assert "\n" not in field.metadata["help"]


def test_specs_import_no_torch():
    modules = ", ".join(f"penstock.algorithms.{name}.spec" for name in NAMES)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spaces", [DISCRETE, CONTINUOUS, UNBOUNDED], ids=["discrete", "bounded", "unbounded"])
def test_spaces_that_it_does_not_serve_are_refused_and_others_named(name, spaces):
    entry = find_algorithm(name)
    kind = "discrete" if spaces is DISCRETE else "bounded" if spaces is CONTINUOUS else "unbounded"
    if kind in entry.actions:
        assert load(entry.spec)(spaces, entry.config()).policy.head.outputs > 0
        return
    with pytest.raises(SpaceError, match=rf"^{name} needs .* use .*ppo"):
        load(entry.spec)(spaces, entry.config())
    with pytest.raises(SpaceError, match=rf"^{name} needs "):
        load(entry.learn)(spaces, entry.config())


@pytest.mark.parametrize("name", NAMES)
def test_actions_have_the_shape_of_their_space(name):
    spaces = spaces_of(name)
    if isinstance(spaces.action, Box):
        spaces = dataclasses.replace(spaces, action=Box((2, 1), "float32", (-1.0,), (1.0,)))
    entry = find_algorithm(name)
    config = entry.config(**SMALL)
    spec, built = load(entry.spec)(spaces, config), load(entry.learn)(spaces, config)
    state = state_of(load(entry.initial)(spaces, config, 1), torch.float32)
    inputs = {"obs": torch.zeros(5, 3), "noise": torch.rand(5, *spec.policy.noise.shape), "explore": torch.ones(5)}
    if spec.policy.carry:
        inputs |= {"first": torch.zeros(5, dtype=torch.bool)}
        inputs |= {part.name: torch.zeros(5, *part.shape) for part in spec.policy.carry}
    outputs = built.act(state, inputs)
    assert {part.name for part in spec.policy.carry} <= set(outputs)
    assert outputs["action"].shape == (5, *spaces.action_spec().shape)
    assert {part.name for part in spec.row} <= set(outputs)
    rows = minibatch_of(spaces, spec, 16, torch.float32)
    for phase in built.phases:
        found = phase.gradients(state, rows, noise_of(phase, 16, torch.float32))
        state |= phase.apply(state, found.gradients)
    assert all(torch.isfinite(values).all() for values in state.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_step_size_falls_with_the_run_where_it_is_told_to(name):
    config, spec, constant = made(name, lr_schedule="constant")
    falling = made(name, lr_schedule="linear")[2]
    state, rows = state_of(first_state(name, config)), minibatch_of(spaces_of(name), spec, 16)
    state["progress"] = torch.tensor(0.75, dtype=torch.float64)
    moved = []
    for phase, same in zip(constant.phases, falling.phases, strict=True):
        found = phase.gradients(state, rows, noise_of(phase, 16)).gradients
        whole, part = phase.apply(state, found), same.apply(state, found)
        for key in found.keys() & {"actor", "critic", "log_alpha"}:
            # A quarter of the run is left, so a quarter of the step.
            torch.testing.assert_close(part[key] - state[key], 0.25 * (whole[key] - state[key]))
            moved.append(key)
    assert set(moved) == {part.name for part in spec.state} & {"actor", "critic", "log_alpha"}


def gradients_of(phase, state, rows, noise, part):
    found = phase.gradients(
        state, {key: values[part] for key, values in rows.items()}, {key: values[part] for key, values in noise.items()}
    )
    return found.gradients


@pytest.mark.parametrize("name", NAMES)
def test_parts_of_a_minibatch_average_to_the_whole(name):
    config, spec, built = made(name)
    state, rows = state_of(first_state(name, config)), minibatch_of(spaces_of(name), spec, 16)
    rows["weight"][13:] = 0.0
    for phase in built.phases:
        noise = noise_of(phase, 16)
        whole = gradients_of(phase, state, rows, noise, slice(None))
        parts = [slice(0, 6), slice(6, 11), slice(11, 16)]
        weights = [float(rows["weight"][part].sum() / rows["weight"].sum()) for part in parts]
        found = [gradients_of(phase, state, rows, noise, part) for part in parts]
        for key, values in whole.items():
            mean = sum(weight * part[key] for weight, part in zip(weights, found, strict=True))
            torch.testing.assert_close(mean, values, rtol=1e-9, atol=1e-12)
        state |= phase.apply(state, whole)


@pytest.mark.parametrize("name", NAMES)
def test_phases_change_nothing_but_what_they_return(name):
    config, spec, built = made(name)
    state, rows = state_of(first_state(name, config)), minibatch_of(spaces_of(name), spec, 16)
    before = {key: values.clone() for key, values in {**state, **rows}.items()}
    names = {part.name for part in spec.state}
    for phase in built.phases:
        changed = phase.apply(state, phase.gradients(state, rows, noise_of(phase, 16)).gradients)
        assert set(changed) <= names
        for key, values in changed.items():
            assert (values.shape, values.dtype) == (state[key].shape, state[key].dtype), key
    assert all(torch.equal(values, before[key]) for key, values in {**state, **rows}.items())


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_has_a_name_of_its_own_in_a_report(name):
    config, spec, built = made(name)
    state, rows = state_of(first_state(name, config)), minibatch_of(spaces_of(name), spec, 16)
    metrics = {}
    for phase in built.phases:
        metrics |= phase.gradients(state, rows, noise_of(phase, 16)).metrics
    values = loss_values({key: float(value) for key, value in metrics.items()})
    assert len(values) == len(metrics) <= METRICS
    assert {"loss/value", "loss/mean_value"} <= values.keys()
    assert values["loss/value"] == float(metrics["value_loss"])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_found_without_what_is_the_optimizers_own(name):
    config, spec, built = made(name)
    state, rows = state_of(first_state(name, config)), minibatch_of(spaces_of(name), spec, 16)
    assert set(spec.optimizer) == {part.name for part in spec.state if part.name.startswith("adam_")}
    shared = {part.name: state[part.name] for part in spec.shared()}
    assert set(shared) | set(spec.optimizer) == set(state)
    for phase in built.phases:
        phase.gradients(shared, rows, noise_of(phase, 16))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_learned_from_rows_alone_has_no_targets_and_statistics(name):
    _, _, built = made(name)
    assert built.targets({}, {}) == {}
    assert built.statistics({}, {}) == {}


@pytest.mark.parametrize("name", NAMES)
def test_normalised_observations_are_learned_from_as_if_they_had_come_so(name):
    config, spec, plain = made(name)
    with_statistics, normalised, built = made(name, normalize_obs=True)
    statistics = {"obs_mean": np.array([1.0, 0.0, -5.0]), "obs_var": np.array([4.0, 1.0, 0.25])}
    assert {part.name for part in normalised.state} - {part.name for part in spec.state} == {*statistics, "obs_count"}
    assert normalised.published() == (*spec.published(), *normalised.policy.statistics())
    first = first_state(name, with_statistics)
    assert first["obs_var"].tolist() == [1.0, 1.0, 1.0]
    assert first["obs_mean"].tolist() == [0.0, 0.0, 0.0]
    state, rows = state_of(first_state(name, config)), minibatch_of(spaces_of(name), spec, 16)
    seen = state | {key: torch.from_numpy(values) for key, values in statistics.items()}
    mean, deviation = seen["obs_mean"], seen["obs_var"].sqrt()
    raw = {key: rows[key] * deviation + mean for key in ("obs", "next.obs") if key in rows}
    for one, other in zip(plain.phases, built.phases, strict=True):
        noise = noise_of(one, 16)
        expected = one.gradients(state, rows, noise).gradients
        found = other.gradients(seen, rows | raw, noise).gradients
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            torch.testing.assert_close(found[key], values, rtol=1e-5, atol=1e-7)


def test_statistics_that_cannot_run_are_refused():
    image = Box((36, 36, 3), "uint8", (0.0,), (255.0,))
    frames = Box((2, 3), "float32", (-1.0,), (1.0,), stack=Stack(2, "first"))
    for space, why in ((image, r"images are scaled"), (frames, r"^obs is a stack of frames")):
        spaces = dataclasses.replace(CONTINUOUS, obs=(("obs", space),))
        with pytest.raises(SpaceError, match=why):
            load(find_algorithm("sac").spec)(spaces, find_algorithm("sac").config(normalize_obs=True))
