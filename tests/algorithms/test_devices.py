"""Algorithms compute where their tensors are. On a device that torch only pretends to have, mixing devices fails."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration

from penstock.algorithm import Algorithm, AlgorithmSpec
from penstock.algorithm_lookup import load_functions
from penstock.ops.losses import mean_by
from penstock.planning import Prepared
from penstock.program.rollout import rollout_specs
from penstock.registry import load
from penstock.types import Array
from penstock.updates.made_up import made_up_inputs, made_up_rollout, made_up_sample
from tests.algorithms.runs import LANES, LONG, QUICK, STEPS
from tests.planned import prepared

# Not "cuda": a torch without CUDA ends the process if it is to differentiate there.
backend_registration._setup_privateuseone_for_python_backend("pretended")
GPU = torch.device("pretended", 0)


@pytest.mark.parametrize(
    "settings",
    [*QUICK, *(pytest.param(settings, marks=pytest.mark.nightly) for settings in LONG)],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_every_array_that_an_algorithm_computes_with_is_on_the_device_of_its_state(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, object]
) -> None:
    monkeypatch.setattr("penstock.updates.devices.check", lambda device: None)
    run = prepared(**settings, device="cuda", inference="torch")
    algorithm: Algorithm = load_functions(run.algorithm.learn)(run.profile.spaces, run.config.algorithm)
    state = load(run.algorithm.initial)(run.profile.spaces, run.config.algorithm, 0)
    state = {part.name: state.get(part.name, np.zeros(part.shape, part.dtype)) for part in run.spec.state}
    # Tensors that a function makes by itself are real ones of the CPU, so they cannot meet those of the GPU unnoticed.
    with FakeTensorMode(allow_non_fake_inputs=True):
        held = on_gpu(state)
        acted = algorithm.act(
            {part.name: held[part.name] for part in run.spec.published()},
            on_gpu(made_up_inputs(run.spec, run.profile.spaces, LANES)),
        )
        assert {values.device for values in acted.values()} == {GPU}
        minibatch = minibatch_of(run, algorithm, held, state)
        minibatch |= algorithm.across_minibatch(minibatch, mean_by(minibatch["weight"]))
        for phase in algorithm.phases:
            count = len(minibatch["weight"])
            noise = {name: np.zeros((count, *part.shape), np.float32) for name, part in phase.noise}
            found = phase.gradients(held, minibatch, on_gpu(noise))
            changed = phase.apply(held, found.gradients)
            for values in (*found.gradients.values(), *found.metrics.values(), *found.per_row.values()):
                assert values.device == GPU
            assert {values.device for values in changed.values()} == {GPU}
            held |= changed


def minibatch_of(
    run: Prepared, algorithm: Algorithm, held: dict[str, Tensor], state: dict[str, Array]
) -> dict[str, Tensor]:
    """A minibatch on the GPU, of rows without any sense. Targets of a rollout are judged on the GPU as well."""
    spec, spaces, config = run.spec, run.profile.spaces, run.config.algorithm
    if spec.table is not None:
        return on_gpu(made_up_sample(spec, spaces, LANES))
    same_step = run.profile.same_step
    slot = rollout_specs(spaces, spec.row, config.num_steps, LANES, same_step=same_step, carry=spec.policy.carry)
    rollout = made_up_rollout(spaces, slot)
    if algorithm.recompute is not None:
        judged = algorithm.recompute(held, on_gpu(rollout))
        assert {values.device for values in judged.values()} == {GPU}
        rollout |= {name: np.zeros(values.shape, np.float32) for name, values in judged.items()}
    return on_gpu(rows_of(spec, rollout | algorithm.targets(state, rollout)))


def rows_of(spec: AlgorithmSpec, rollout: dict[str, Array]) -> dict[str, Array]:
    """All rows of a rollout, or all its lanes."""
    if spec.unit == "row":
        rows = {name: rollout[name][:STEPS].reshape(STEPS * LANES, *rollout[name].shape[2:]) for name in spec.minibatch}
        return rows | {"weight": np.ones(STEPS * LANES, np.float32)}
    carry = {part.name for part in spec.policy.carry}
    lanes = {name: rollout[name] if name in carry else rollout[name].swapaxes(0, 1) for name in spec.minibatch}
    return lanes | {"weight": np.ones((LANES, STEPS), np.float32)}


def on_gpu(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Tensors of these shapes and dtypes: a pretended device holds no values."""
    return {
        name: torch.empty(values.shape, dtype=getattr(torch, values.dtype.name), device=GPU)
        for name, values in arrays.items()
    }
