"""Layers in fewer bits: steps near those in float32, whose parameters stay float32, for every kind of algorithm."""

from collections.abc import Mapping

import numpy as np
import pytest

from penstock.errors import NoEffectError
from penstock.registry import load
from penstock.updates.made_up import made_up_inputs
from tests.algorithms.made_up_steps import apart, first_state, learned, name_of
from tests.algorithms.runs import LONG, RUNS
from tests.planned import prepared

ROUNDED = [
    pytest.param(settings, marks=[pytest.mark.nightly] if settings in LONG else [])
    for settings in RUNS
    if "precision" in settings
]
NETWORKS = ("actor", "critic", "memory")


@pytest.mark.parametrize("settings", ROUNDED, ids=name_of)
def test_steps_in_bfloat16_and_in_float16_are_nearly_those_in_float32(settings: Mapping[str, object]) -> None:
    run, exact = prepared(**settings), prepared(**{**settings, "precision": "float32"})
    found, expected = learned(run, "eager", "cpu"), learned(exact, "eager", "cpu")
    assert {name: found[name].dtype for name in expected} == {name: values.dtype for name, values in expected.items()}
    before = first_state(exact)
    # Cloning leaves its critic as it begins.
    moved = {name for name in NETWORKS if name in before and (expected[name] != before[name]).any()}
    shares = {name: share for name, share in apart(exact, found, expected).items() if name in moved}
    assert shares
    # Optimizers follow the sign of small gradients, so a rounding of 1 % may turn a tenth of the way.
    assert all(1e-4 < share < 0.3 for share in shares.values()), shares


def test_a_policy_with_memory_acts_in_bfloat16_and_carries_float32() -> None:
    run = prepared(algo="ppo", env="CartPole-v1", model="lstm", precision="bfloat16", inference="torch")
    policy = load(run.inference.build)(*run.inference.arguments)
    policy.load({part.name: first_state(run)[part.name] for part in run.spec.published()})
    inputs = made_up_inputs(run.spec, run.profile.spaces, 3)
    inputs["obs"][...] = 0.3
    out = {part.name: np.full((3, *part.shape), np.nan, part.dtype) for part in run.spec.policy.carry}
    policy.act(inputs, out)
    assert all(np.isfinite(values).all() and np.abs(values).sum() > 0 for values in out.values())


def test_a_module_of_ones_own_chooses_its_number_type_itself() -> None:
    with pytest.raises(NoEffectError, match=r"--precision has no effect: --model .* makes its layers itself"):
        prepared(env="Pendulum-v1", model="tests.torch_networks.own_modules:Plain", precision="bfloat16")
