"""Every updater over a table, for any algorithm: phases in turn, noise by counter, parts, an exchange."""

import numpy as np
import pytest
import torch

from penstock.errors import PenstockError
from penstock.kernels.noise import generate
from penstock.registry import load
from penstock.seeding import phase_seed
from penstock.updates.phases import PhaseClock
from tests.updates import tracking

ROWS = 8
PART = 4
"""Rows of each of the two parts of a minibatch, if it has parts, also where gradients are exchanged. Nothing else has
another size, because each size, and each minibatch without parts, would be compiled for itself."""
NAMES = ("actor", "critic", "target")
COMPILED_AT_NIGHT = ["eager", pytest.param("compiled", marks=pytest.mark.nightly)]
"""For two tests whose compiled form takes half a minute. Shorter: the phases, and parts that are handed on as one."""


@pytest.fixture(params=["eager", "compiled"])
def make(request):
    build_replay = load(f"penstock.updates.{request.param}:build_replay")

    def made(rows=ROWS, exchange=None, **changed):
        updater = build_replay(tracking.settings(rows, **changed), exchange)
        updater.load(tracking.init_state(0))
        return updater

    return made


@pytest.fixture(params=["eager", "compiled"])
def builders(request):
    return [load(f"penstock.updates.{request.param}:build_{kind}") for kind in ("replay", "follower", "applier")]


def copied(updater):
    return {name: values.copy() for name, values in updater.state().items()}


def by_hand(state, minibatch, steps, progress, first_row=0):
    """The state after so many gradient steps from the first, in float64; the last step's priorities."""
    state = {name: state[name].astype(np.float64) for name in NAMES}
    config = tracking.Config()
    share = minibatch["weight"] / minibatch["weight"].sum()
    obs = minibatch["obs"].astype(np.float64)
    rows = first_row + np.arange(len(obs))
    for step in range(steps):
        noise = generate(tracking.NOISE, phase_seed(3, 0, 0), rows, step)
        error = obs @ state["critic"] + config.noise * noise - minibatch["reward"]
        state["critic"] = state["critic"] - config.lr * (share * error) @ obs
        if step % 2 == 0:
            gradient = (share * (obs @ (state["actor"] - state["critic"]))) @ obs
            state["actor"] = state["actor"] - config.lr * (1.0 - progress) * gradient
        if step % 2 == 0:
            state["target"] = state["critic"]
    return state, np.abs(error)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_each_phase_sees_what_the_one_before_left_and_runs_when_it_is_due(make, steps):
    updater, minibatch = make(), tracking.minibatch(ROWS)
    for _ in range(steps):
        per_row = updater.learn(minibatch, 0.25)
    expected, priority = by_hand(tracking.init_state(0), minibatch, steps, 0.25)
    found = updater.state()
    for name in NAMES:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)
    assert int(found["gradient_steps"]) == steps
    assert float(found["progress"]) == 0.25
    assert set(per_row) == {"priority"}
    assert per_row["priority"].dtype == np.float32
    np.testing.assert_allclose(per_row["priority"], priority, rtol=1e-5, atol=1e-6)


def test_metrics_are_means_over_the_gradient_steps_since_the_last_call(make):
    updater, minibatch = make(), tracking.minibatch(ROWS)
    losses = []
    for _ in range(3):
        updater.learn(minibatch, 0.0)
        losses.append(updater.metrics()["critic_loss"])
    again = make()
    for _ in range(3):
        again.learn(minibatch, 0.0)
    found = again.metrics()
    assert set(found) == {"critic_loss", "actor_loss"}
    assert found["critic_loss"] == pytest.approx(np.mean(losses), rel=1e-6)
    assert again.metrics() == {}


def test_a_step_that_is_done_again_is_the_same_step(make):
    updater, minibatches = make(), [tracking.minibatch(ROWS, seed) for seed in range(5)]
    for minibatch in minibatches[:3]:
        updater.learn(minibatch, 0.1)
    between = copied(updater)
    for minibatch in minibatches[3:]:
        updater.learn(minibatch, 0.1)
    after = copied(updater)
    other = make()
    other.load(between)
    for minibatch in minibatches[3:]:
        other.learn(minibatch, 0.1)
    for name, values in other.state().items():
        assert values.tobytes() == after[name].tobytes(), name


def test_it_does_not_matter_in_which_arrays_a_minibatch_comes(make):
    updater, other = make(), make()
    buffers = [updater.buffers(), updater.buffers()]
    for step in range(6):
        minibatch = tracking.minibatch(ROWS, step)
        buffer = buffers[step % 3 % 2]
        for name, values in minibatch.items():
            buffer[name][...] = values
        per_row, expected = updater.learn(buffer, 0.1), other.learn(minibatch, 0.1)
        assert per_row["priority"].tobytes() == expected["priority"].tobytes()
    for name, values in other.state().items():
        assert values.tobytes() == updater.state()[name].tobytes(), name


def test_load_and_state_are_copies(make):
    updater = make()
    mine = tracking.init_state(5)
    updater.load(mine)
    mine["critic"][:] = 0.0
    assert updater.state()["critic"].tolist() == tracking.init_state(5)["critic"].tolist()


@pytest.mark.parametrize("make", COMPILED_AT_NIGHT, indirect=True)
def test_parts_of_a_minibatch_are_averaged_by_weight_before_a_phase_steps(make):
    whole, parts = make(ROWS), make(PART, accumulate=2)
    for seed in range(4):
        minibatch = tracking.minibatch(ROWS, seed)
        once, twice = whole.learn(minibatch, 0.0), parts.learn(minibatch, 0.0)
        np.testing.assert_allclose(twice["priority"], once["priority"], rtol=1e-5, atol=1e-6)
    for name in NAMES:
        np.testing.assert_allclose(parts.state()[name], whole.state()[name], rtol=1e-5, atol=1e-6)
    assert parts.metrics()["critic_loss"] == pytest.approx(whole.metrics()["critic_loss"], rel=1e-5)


@pytest.mark.parametrize("rows", [0, 3, 9])
def test_a_minibatch_of_another_size_is_refused(make, rows):
    with pytest.raises(ValueError, match=f"a minibatch of {rows} rows is not 2 of 4"):
        make(PART, accumulate=2).learn({name: values[:rows] for name, values in tracking.minibatch(12).items()}, 0.0)


def test_an_exchange_stands_between_gradients_and_step_once_a_phase_that_has_gradients(make):
    calls = []

    def exchange(phase, gradients, weight):
        calls.append((phase, {name: values.copy() for name, values in gradients.items()}, weight))
        return {name: 2.0 * values for name, values in gradients.items()}

    alone = make(PART, lambda phase, gradients, weight: gradients, accumulate=2)
    exchanging = make(PART, exchange, accumulate=2)
    minibatch = tracking.minibatch(ROWS)
    before = tracking.init_state(0)["critic"]
    alone.learn(minibatch, 0.0)
    exchanging.learn(minibatch, 0.0)
    assert [(phase, set(gradients), weight) for phase, gradients, weight in calls] == [
        ("critic", {"critic"}, ROWS - 1.0),
        ("actor", {"actor"}, ROWS - 1.0),
    ]
    change = alone.state()["critic"] - before
    np.testing.assert_allclose(calls[0][1]["critic"], -change / tracking.Config().lr, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(exchanging.state()["critic"] - before, 2.0 * change, rtol=1e-4, atol=1e-6)
    exchanging.learn(minibatch, 0.0)
    assert [phase for phase, _, _ in calls] == ["critic", "actor", "critic"]


@pytest.mark.parametrize("builders", COMPILED_AT_NIGHT, indirect=True)
def test_gradients_that_are_handed_on_are_all_of_the_state_as_it_is(builders):
    """By hand: the actor's gradient uses the critic from before its step. The applier takes both steps."""
    _, build_follower, build_applier = builders
    found, config, state = {}, tracking.Config(), tracking.init_state(0)

    def note(phase, gradients, weight):
        assert weight == ROWS - 1.0
        found[phase] = {name: values.copy() for name, values in gradients.items()}

    follower, applier = build_follower(tracking.settings(ROWS), note), build_applier(tracking.settings(ROWS))
    for part in (follower, applier):
        part.load(state)
    minibatch = tracking.minibatch(ROWS)
    priority = follower.learn(minibatch, 0.25)["priority"]
    share = minibatch["weight"] / minibatch["weight"].sum()
    obs = minibatch["obs"].astype(np.float64)
    noise = generate(tracking.NOISE, phase_seed(3, 0, 0), np.arange(ROWS), 0)
    error = obs @ state["critic"] + config.noise * noise - minibatch["reward"]
    expected = {
        "critic": (share * error) @ obs,
        "actor": (share * (obs @ (state["actor"] - state["critic"]))) @ obs,
    }
    assert set(found) == {"critic", "actor"}
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name][name], gradient, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(priority, np.abs(error), rtol=1e-5, atol=1e-6)
    for name in NAMES:
        assert follower.state()[name].tobytes() == state[name].tobytes(), name
    applier.apply(found, 0.25)
    stepped = applier.state()
    np.testing.assert_allclose(
        stepped["critic"], state["critic"] - config.lr * expected["critic"], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        stepped["actor"], state["actor"] - 0.75 * config.lr * expected["actor"], rtol=1e-5, atol=1e-6
    )
    assert stepped["target"].tobytes() == stepped["critic"].tobytes()
    critic = stepped["critic"].copy()
    applier.apply({}, 0.25)
    assert applier.state()["critic"].tobytes() == critic.tobytes()
    assert int(applier.state()["gradient_steps"]) == 2


def test_who_hands_gradients_on_counts_its_steps_and_tells_its_losses(builders):
    build_replay, build_follower, _ = builders
    alone, phases = build_replay(tracking.settings(ROWS)), []
    follower = build_follower(tracking.settings(ROWS), lambda phase, gradients, weight: phases.append(phase))
    for part in (alone, follower):
        part.load(tracking.init_state(0))
        part.learn(tracking.minibatch(ROWS), 0.0)
    assert follower.metrics()["critic_loss"] == pytest.approx(alone.metrics()["critic_loss"], rel=1e-6)
    for _ in range(2):
        follower.learn(tracking.minibatch(ROWS), 0.0)
    assert follower.gradient_steps == int(follower.state()["gradient_steps"]) == 3
    assert phases == ["critic", "actor", "critic", "critic", "actor"]


def test_parts_of_a_minibatch_are_handed_on_as_one(builders):
    _, build_follower, _ = builders
    found = []
    for rows, accumulate in ((ROWS, 1), (PART, 2)):
        follower = build_follower(
            tracking.settings(rows, accumulate=accumulate),
            lambda phase, gradients, weight: found.append({name: values.copy() for name, values in gradients.items()}),
        )
        follower.load(tracking.init_state(0))
        for seed in range(2):
            follower.learn(tracking.minibatch(ROWS, seed), 0.0)
    whole, parts = found[:3], found[3:]
    for one, two in zip(whole, parts, strict=True):
        for name, values in one.items():
            np.testing.assert_allclose(two[name], values, rtol=1e-4, atol=1e-6)


def test_learners_with_a_share_of_the_rows_each_do_what_one_does_with_all(make):
    """K learners with B/K rows each do the same as one with B: a row's noise depends on its place among all rows."""
    minibatch = tracking.minibatch(2 * ROWS)
    halves = [
        {name: values[part] for name, values in minibatch.items()} for part in (slice(0, ROWS), slice(ROWS, 2 * ROWS))
    ]
    met = {}

    def meet(phase, gradients, weight):
        met.setdefault(phase, []).append((gradients[phase].copy(), weight))
        (first, mine), (second, others) = (met[phase] * 2)[:2]
        return {phase: (mine * first + others * second) / (mine + others)}

    first, second = (make(PART, meet, learner=learner, accumulate=2) for learner in (0, 1))
    first.learn(halves[0], 0.0)
    second.learn(halves[1], 0.0)
    together, _ = by_hand(tracking.init_state(0), minibatch, 1, 0.0)
    np.testing.assert_allclose(second.state()["critic"], together["critic"], rtol=1e-5, atol=1e-6)


def test_a_part_of_padding_that_is_left_out_has_its_noise_too(make):
    """Learner 0 has rows 0 to 7. So learner 1 begins with row 8, also if only the first of its two parts has rows."""
    minibatch = tracking.minibatch(PART)
    learner = make(PART, lambda phase, gradients, weight: gradients, learner=1, accumulate=2)
    part = {name: torch.from_numpy(values) for name, values in minibatch.items()}
    learner._stepper.step([part], [3.0], lambda phase, gradients, weight: gradients)
    expected, _ = by_hand(tracking.init_state(0), minibatch, 1, 0.0, first_row=2 * PART)
    for name in NAMES:
        np.testing.assert_allclose(learner.state()[name], expected[name], rtol=1e-5, atol=1e-6)


def test_a_count_that_the_state_does_not_keep_is_refused():
    for every, noise in (([1, 2], [(), ()]), ([1], [(("sample", tracking.NOISE),)])):
        with pytest.raises(PenstockError, match="need gradient_steps"):
            PhaseClock(every, noise, 0, counted=False)
    assert PhaseClock([1], [()], 0, counted=False).due() == (0,)


def test_noise_of_learning_is_not_that_of_acting():
    noise = [(("a", tracking.NOISE), ("b", tracking.NOISE)), (("a", tracking.NOISE),)]
    clock = PhaseClock([1, 1], noise, 3, counted=True)
    generated = [clock.noise(0, 0, 5)["a"], clock.noise(0, 0, 5)["b"], clock.noise(1, 0, 5)["a"]]
    generated.append(generate(tracking.NOISE, 3, np.arange(5), 0))
    clock.count = 1
    generated.append(clock.noise(0, 0, 5)["a"])
    assert len({values.tobytes() for values in generated}) == len(generated)
    clock.count = 0
    assert np.array_equal(clock.noise(0, 3, 2)["a"], generated[0][3:])
