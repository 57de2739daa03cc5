"""The scaled losses of algorithms that learn from a table: which steps are left out, and how the scales go."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from penstock.algorithm import Algorithm, AlgorithmSpec, Gradients, Phase
from penstock.algorithm_lookup import find_algorithm, load_functions
from penstock.algorithms.off_policy.spec import ReplayConfig
from penstock.algorithms.optimizer.loss_scale import scaled
from penstock.algorithms.optimizer.spec import scale_names
from penstock.nodes.learner.gradient_slot import Filling, gradients_in, slot_specs
from penstock.ops.loss_scaling import GROWTH_STEPS
from penstock.registry import ALGORITHMS, UPDATES, load
from penstock.types import Array, Arrays, Spaces
from penstock.updates.settings import UpdaterSettings
from tests.algorithms.made_up_steps import first_state, sample
from tests.algorithms.replay_rows import CONTINUOUS, DISCRETE, minibatch_of, noise_of, state_of
from tests.planned import prepared

NAMES = [name for name in ALGORITHMS.names() if issubclass(find_algorithm(name).config, ReplayConfig)]
MEMORY = {"model": "lstm", "memory_size": 3, "burn_in": 1, "learned_steps": 3}
CASES = [*((name, {}) for name in NAMES if name != "r2d2"), ("r2d2", MEMORY), ("sac", MEMORY)]
EACH = pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda case: case if isinstance(case, str) else "")


def spaces_of(name: str) -> Spaces:
    return DISCRETE if "discrete" in find_algorithm(name).actions else CONTINUOUS


def built(name: str, settings: Mapping[str, object], precision: str = "float16") -> tuple[AlgorithmSpec, Algorithm]:
    package, spaces = find_algorithm(name), spaces_of(name)
    config = package.config(hidden_sizes=(5, 4), mini_batch_size=8, precision=precision, **settings)
    return load(package.spec)(spaces, config), load_functions(package.learn)(spaces, config)


def begun(name: str, settings: Mapping[str, object]) -> dict[str, Tensor]:
    """A first state in float32 whose targets are not their networks, with the scales of float16."""
    package = find_algorithm(name)
    config = package.config(hidden_sizes=(5, 4), mini_batch_size=8, precision="float16", **settings)
    first = load(package.initial)(spaces_of(name), config, 1)
    moved = state_of({key: values for key, values in first.items() if "scale" not in key}, torch.float32)
    return moved | {key: torch.from_numpy(np.array(values)) for key, values in first.items() if "scale" in key}


def learning(algorithm: Algorithm) -> list[tuple[Phase, str]]:
    """The phases with gradients, and the names of their losses."""
    phases = [phase for phase in algorithm.phases if phase.name != "target"]
    return [(phase, phase.name if len(phases) > 1 else "") for phase in phases]


def found_by(name: str, spec: AlgorithmSpec, phase: Phase, state: Mapping[str, Tensor]) -> Gradients:
    rows = minibatch_of(spaces_of(name), spec, 8, torch.float32)
    return phase.gradients(state, rows, noise_of(phase, 8, torch.float32))


@EACH
def test_each_loss_has_a_scale_of_its_own_in_float16_alone(name: str, settings: dict[str, object]) -> None:
    spec, algorithm = built(name, settings)
    state = begun(name, settings)
    names = [scale_names(loss) for _, loss in learning(algorithm)]
    assert {part.name for part in spec.state if "scale" in part.name} == {one for both in names for one in both}
    assert len(names) == (1 if name in {"dqn", "apex", "r2d2"} else 2)
    for scale, steps in names:
        assert (float(state[scale]), int(state[steps])) == (65536.0, 0)
        assert (state[scale].dtype, state[steps].dtype) == (torch.float32, torch.int64)
    # Gradients depend on the scales, so learners that hand them on have to be told.
    assert {scale for scale, _ in names} <= {part.name for part in spec.shared()}
    plain, _ = built(name, settings, "bfloat16")
    assert [part for part in spec.state if "scale" not in part.name] == list(plain.state)


@EACH
def test_a_step_down_gradients_that_overflowed_changes_nothing_but_its_scale(
    name: str, settings: dict[str, object]
) -> None:
    _, algorithm = built(name, settings)
    spec, exact = built(name, settings, "float32")
    before = begun(name, settings)
    without = {key: values for key, values in before.items() if "scale" not in key}
    for (phase, loss), (plain, _) in zip(learning(algorithm), learning(exact), strict=True):
        sound = found_by(name, spec, plain, without).gradients
        scale, steps = scale_names(loss)
        for number, overflowed in enumerate(sound):
            bad = {key: values.clone() for key, values in sound.items()}
            bad[overflowed][-1] = (np.inf, np.nan)[number % 2]
            left_out = {**before, **phase.apply(before, {**bad, scale: before[scale]})}
            assert (float(left_out[scale]), int(left_out[steps])) == (32768.0, 0)
            for key in before.keys() - {scale}:
                assert torch.equal(left_out[key], before[key]), key
            # Another one that was found by the same scale is left out too, but the scale was halved for both.
            again = phase.apply(left_out, {**bad, scale: before[scale]})
            for key, values in again.items():
                assert torch.equal(values, left_out[key]), key
        # The step after it is the one that is taken in float32.
        taken, expected = phase.apply(left_out, {**sound, scale: left_out[scale]}), plain.apply(without, sound)
        assert taken.keys() == expected.keys() | {scale, steps}
        assert (float(taken[scale]), int(taken[steps])) == (32768.0, 1)
        for key, values in expected.items():
            assert torch.equal(taken[key], values), key
            assert taken[key].dtype == before[key].dtype


def test_a_scale_doubles_after_as_many_steps_as_that_of_ppo_and_the_others_stay() -> None:
    _, algorithm = built("td3", {})
    state = begun("td3", {}) | {"loss_scale_steps.critic": torch.tensor(GROWTH_STEPS - 1)}
    critic, actor = (phase for phase, _ in learning(algorithm))
    sound = {"critic": torch.full_like(state["critic"], 1e-3), "loss_scale.critic": state["loss_scale.critic"]}
    after = {**state, **critic.apply(state, sound)}
    assert (float(after["loss_scale.critic"]), int(after["loss_scale_steps.critic"])) == (131072.0, 0)
    assert (float(after["loss_scale.actor"]), int(after["loss_scale_steps.actor"])) == (65536.0, 0)
    of_actor = {"actor": torch.full_like(state["actor"], 1e-3), "loss_scale.actor": state["loss_scale.actor"]}
    after |= actor.apply(after, of_actor)
    assert (float(after["loss_scale.actor"]), int(after["loss_scale_steps.actor"])) == (65536.0, 1)
    assert (float(after["loss_scale.critic"]), int(after["loss_scale_steps.critic"])) == (131072.0, 0)


@EACH
def test_a_scale_changes_no_gradient_and_no_priority_and_is_told(name: str, settings: dict[str, object]) -> None:
    """A power of two is exact. So the layers are float32 here, which no gradient of these rows can overflow."""
    ranked = settings | ({"prioritised": True} if name in {"dqn", "apex", "r2d2"} else {})
    spec, exact = built(name, ranked, "float32")
    state = begun(name, ranked)
    for phase, loss in learning(exact):
        scale, told = scale_names(loss)[0], f"{loss}_loss_scale" if loss else "loss_scale"
        plain = found_by(name, spec, phase, {key: values for key, values in state.items() if "scale" not in key})
        found = found_by(name, spec, phase, {**state, scale: torch.tensor(1024.0)})
        assert found.gradients.keys() == plain.gradients.keys() | {scale}
        assert float(found.gradients[scale]) == 1024.0
        for key, values in plain.gradients.items():
            torch.testing.assert_close(found.gradients[key], values, rtol=1e-6, atol=1e-12)
        assert {key: float(value) for key, value in found.metrics.items()} == pytest.approx(
            {**{key: float(value) for key, value in plain.metrics.items()}, told: 1024.0}
        )
        # A scale by which every gradient overflows changes no error: errors are found without it.
        over = found_by(name, spec, phase, {**state, scale: torch.tensor(np.inf)})
        assert not all(bool(over.gradients[key].isfinite().all()) for key in plain.gradients)
        told_of_it = {key: float(value) for key, value in over.metrics.items() if key != told}
        assert all(map(np.isfinite, told_of_it.values())), told_of_it
        assert over.per_row.keys() == plain.per_row.keys() == ({"priority"} if "prioritised" in ranked else set())
        for key, values in plain.per_row.items():
            assert values.dtype == torch.float32
            assert torch.equal(over.per_row[key], values)


def test_the_scale_that_is_told_is_the_one_before_the_step() -> None:
    """A step that is one program writes the state in place, and then sums up the metrics."""
    phase = scaled(Phase("one", lambda *_: Gradients({}, {"grad_norm": torch.tensor(np.inf)}, {}), lambda *_: {}))
    state = {"loss_scale": torch.tensor(1024.0), "loss_scale_steps": torch.tensor(0)}
    found = phase.gradients(state, {}, {})
    state["loss_scale"].fill_(512.0)
    assert {key: float(value) for key, value in found.metrics.items()} == {"grad_norm": 0.0, "loss_scale": 1024.0}
    assert {key: float(value) for key, value in found.gradients.items()} == {"loss_scale": 1024.0}


class Overflowing:
    """What learners agree on: a gradient, of which one number is infinite at the first step of the phase ``critic``."""

    def __init__(self) -> None:
        self.steps = 0

    def mean(self, arrays: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        del weight
        return arrays

    def __call__(self, phase: str, gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
        del weight
        found = {name: values.copy() for name, values in gradients.items()}
        if phase == "critic":
            self.steps += 1
            if self.steps == 1:
                found["critic"][3] = np.inf
        return found


SAC = prepared(algo="sac", env="Pendulum-v1", precision="float16", hidden_sizes=(8,), mini_batch_size=16)
SETTINGS = UpdaterSettings(
    SAC.algorithm.learn, SAC.config.algorithm, SAC.spec, SAC.profile.spaces, "cpu", threads=1, seed=0
)


def scales_in(state: Mapping[str, Array]) -> list[tuple[float, int]]:
    return [(float(state[scale]), int(state[steps])) for scale, steps in (scale_names("critic"), scale_names("actor"))]


def test_learners_leave_out_the_step_whose_agreed_gradient_is_infinite_and_take_those_of_other_networks() -> None:
    updater = load(UPDATES["eager"].replay)(SETTINGS, Overflowing())
    first = first_state(SAC)
    updater.load(first)
    states: list[Arrays] = []
    for step in range(2):
        updater.learn(sample(SAC, step), 0.0)
        states.append({name: np.array(values) for name, values in updater.state().items()})
    assert [scales_in(state) for state in states] == [[(32768.0, 0), (65536.0, 1)], [(32768.0, 1), (65536.0, 2)]]
    assert [int(state["adam_step.critic"]) for state in states] == [0, 1]
    for name in ("critic", "target.critic", "adam_m.critic"):
        np.testing.assert_array_equal(states[0][name], first[name])
        assert not np.array_equal(states[1][name], first[name])
    for name in ("actor", "log_alpha"):
        assert not np.array_equal(states[0][name], first[name])


def test_the_owner_of_the_parameters_leaves_out_the_steps_of_infinite_gradients_that_are_handed_on() -> None:
    applier = load(UPDATES["eager"].applier)(SETTINGS)
    first = first_state(SAC)
    applier.load(first)
    sound = {name: np.full_like(first[name], 1e-3) for name in ("critic", "actor", "log_alpha")}
    scales = {name: first[f"loss_scale.{name}"] for name in ("critic", "actor")}
    actor = {**{name: sound[name] for name in ("actor", "log_alpha")}, "loss_scale.actor": scales["actor"]}
    critic = {"critic": sound["critic"] * np.inf, "loss_scale.critic": scales["critic"]}
    applier.apply({"critic": critic, "actor": actor}, 0.0)
    found = {name: np.array(values) for name, values in applier.state().items()}
    assert scales_in(found) == [(32768.0, 0), (65536.0, 1)]
    np.testing.assert_array_equal(found["target.critic"], first["target.critic"])
    np.testing.assert_array_equal(found["critic"], first["critic"])
    # The temperature steps with its actor or not at all, although its own gradient is sound.
    applier.apply({"actor": {**actor, "actor": actor["actor"] * np.nan}}, 0.0)
    after = applier.state()
    assert scales_in(after) == [(32768.0, 0), (32768.0, 0)]
    for name in ("actor", "log_alpha", "adam_m.log_alpha"):
        np.testing.assert_array_equal(after[name], found[name])


def test_gradients_of_several_learners_that_overflow_by_one_scale_halve_it_once() -> None:
    """As asynchronous learners hand them on: through slots, some of them filled before the first is applied."""
    shared, first = SAC.spec.shared(), first_state(SAC)
    places = {part.name: place for place, part in enumerate(shared)}
    found = {"critic": np.full_like(first["critic"], np.inf)}
    applier = load(UPDATES["eager"].applier)(SETTINGS)
    applier.load(first)
    scales = []
    for used in (65536.0, 65536.0, 65536.0, 32768.0, 65536.0):
        slot = {part.name: np.zeros(part.shape, part.dtype) for part in slot_specs(shared)}
        Filling(slot, places).put("critic", {**found, "loss_scale.critic": np.array(used, np.float32)}, 1.0)
        applier.apply(gradients_in(slot, shared), 0.0)
        scales.append(scales_in(applier.state())[0][0])
    assert scales == [32768.0, 32768.0, 32768.0, 16384.0, 16384.0]
