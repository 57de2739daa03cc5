"""Some gradient steps of any algorithm by made-up rows, on any device."""

from collections.abc import Mapping

import numpy as np

from benchmarks.varied import varied
from penstock.planning import Prepared
from penstock.program.rollout import rollout_specs
from penstock.registry import UPDATES, load
from penstock.types import Array, Arrays
from penstock.updates.made_up import made_up_rollout, made_up_sample
from penstock.updates.settings import UpdaterSettings
from tests.algorithms.runs import LANES, STEPS

GRADIENT_STEPS = 3


def name_of(settings: Mapping[str, object]) -> str:
    """The name of a test with these settings."""
    return "-".join(map(str, settings.values()))


def apart(run: Prepared, found: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, float]:
    """How far each array of a state is from the expected one, as a share of the way of that from the first state."""
    before, shares = first_state(run), {}
    for name, values in expected.items():
        moved = np.linalg.norm(np.asarray(values, np.float64) - before[name])
        away = np.linalg.norm(np.asarray(found[name], np.float64) - values)
        # Numbers next to zero have no share that says anything.
        shares[name] = float(max(away - 1e-6, 0.0) / (moved + 1e-12))
    return shares


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
    updater.merge([0])
    updater.minibatches(*minibatches(run))
    updater.finish()
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
    return varied(run.profile.spaces, made_up_rollout(run.profile.spaces, specs), np.random.default_rng(1))


def sample(run: Prepared, number: int) -> Arrays:
    """A minibatch from a table, likewise."""
    size = run.spec.schedule.mini_batch_size
    return varied(
        run.profile.spaces, made_up_sample(run.spec, run.profile.spaces, size), np.random.default_rng(10 + number)
    )
