"""Updates on a GPU against those on the CPU: from the same state, by the same rows."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from penstock.algorithm import UpdaterSettings
from penstock.planning import Prepared
from penstock.program.rollout import rollout_specs
from penstock.registry import UPDATES, load
from penstock.types import Array, Arrays, Discrete
from penstock.updates.made_up import made_up_rollout, made_up_sample
from tests.algorithms.runs import LANES, RUNS, STEPS
from tests.planned import prepared

pytestmark = pytest.mark.gpu
GRADIENT_STEPS = 3
FAR = 0.02
"""How far a change of the state may be from that on the CPU, as a share of its length."""
FAR_ROUNDED = 0.3
"""The same where layers compute in another number type, and optimizers follow the sign of small gradients."""


@pytest.fixture(autouse=True)
def exact_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself torch rounds what convolutions on a GPU multiply to 10 bits."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def name_of(settings: Mapping[str, object]) -> str:
    return "-".join(map(str, settings.values()))


@pytest.mark.parametrize("settings", RUNS, ids=name_of)
@pytest.mark.parametrize("backend", ["eager", "compiled"])
def test_steps_on_a_gpu_are_those_of_the_eager_update_on_the_cpu(backend: str, settings: Mapping[str, object]) -> None:
    """On the CPU they are float32."""
    run, on_cpu = (
        prepared(**settings, device="cuda"),
        prepared(**{name: value for name, value in settings.items() if name != "precision"}),
    )
    found, expected, before = learned(run, backend, "cuda"), learned(on_cpu, "eager", "cpu"), first_state(on_cpu)
    far = FAR_ROUNDED if "precision" in settings else FAR
    assert found.keys() >= expected.keys()
    for name, values in expected.items():
        moved = np.linalg.norm(np.asarray(values, np.float64) - before[name])
        apart = np.linalg.norm(np.asarray(found[name], np.float64) - values)
        assert apart <= far * moved + 1e-6, f"{name}: {apart} apart after a way of {moved}"


def learned(run: Prepared, backend: str, device: str) -> Arrays:
    """The state after some gradient steps by made-up rows."""
    functions = run.algorithm.learn, run.config.algorithm, run.spec, run.profile.spaces
    settings = UpdaterSettings(*functions, device, threads=1, seed=0)
    if run.spec.table is not None:
        updater = load(UPDATES[backend].replay)(settings)
        updater.load(first_state(run))
        buffers = updater.buffers()
        for step in range(GRADIENT_STEPS):
            for name, values in sample(run, step).items():
                buffers[name][...] = values
            updater.learn(buffers, 0.25)
        return copied(updater.state())
    arrays = {name: values[None] for name, values in rollout(run).items()}
    updater = load(UPDATES[backend].stream)(settings, arrays)
    updater.load(first_state(run))
    updater.begin([0], 0.25)
    updater.minibatches(*minibatches(run))
    updater.finish([0])
    return copied(updater.state())


def copied(state: Mapping[str, Array]) -> Arrays:
    return {name: np.array(state[name]) for name in state}


def first_state(run: Prepared) -> Arrays:
    given = load(run.algorithm.initial)(run.profile.spaces, run.config.algorithm, 0)
    return {part.name: np.array(given.get(part.name, np.zeros(part.shape, part.dtype))) for part in run.spec.state}


def minibatches(run: Prepared) -> tuple[Array, Array]:
    """Indices and weights of some minibatches of rows, or of lanes."""
    generator, size = np.random.default_rng(2), run.spec.schedule.mini_batch_size
    units = STEPS * LANES if run.spec.unit == "row" else LANES
    return generator.integers(0, units, (GRADIENT_STEPS, size)), np.ones((GRADIENT_STEPS, size), np.float32)


def rollout(run: Prepared) -> Arrays:
    """A slot of a stream with random observations, actions, rewards and values."""
    same_step, carry = run.profile.same_step, run.spec.policy.carry
    specs = rollout_specs(
        run.profile.spaces, run.spec.row, run.config.algorithm.num_steps, LANES, same_step=same_step, carry=carry
    )
    return varied(run, made_up_rollout(run.profile.spaces, specs), np.random.default_rng(1))


def sample(run: Prepared, number: int) -> Arrays:
    """A minibatch from a table, likewise."""
    size = run.spec.schedule.mini_batch_size
    return varied(run, made_up_sample(run.spec, run.profile.spaces, size), np.random.default_rng(10 + number))


def varied(run: Prepared, arrays: Arrays, generator: np.random.Generator) -> Arrays:
    """Made-up rows with random numbers where the maths takes any."""
    spaces = run.profile.spaces
    for name, values in arrays.items():
        space = dict(spaces.obs).get(name.removeprefix("next."))
        if name == "action":
            high = spaces.action.n if isinstance(spaces.action, Discrete) else None
            drawn = generator.integers(0, high, values.shape) if high else generator.uniform(-1, 1, values.shape)
            values[...] = drawn
        elif name == spaces.mask or name in {"weight", "importance", "discount"}:
            continue
        elif values.dtype == np.uint8:
            values[...] = generator.integers(0, 256, values.shape)
        elif values.dtype == np.float32:
            values[...] = 0.3 * generator.standard_normal(values.shape)
        elif isinstance(space, Discrete):
            values[...] = generator.integers(space.start, space.start + space.n, values.shape)
    if "log_prob" in arrays:
        arrays["log_prob"][...] -= 1.0
    return arrays
