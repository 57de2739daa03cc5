"""Policies that act on a GPU as a CUDA graph, against the same ``act`` run there operation by operation."""

import gc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.varied import varied
from penstock.algorithm import Algorithm, Tensors
from penstock.algorithm_lookup import load_functions
from penstock.inference.torch import CapturedPolicy, TorchPolicy, build
from penstock.planning import Prepared
from penstock.program.rollout import rollout_specs
from penstock.types import Arrays, Box, PolicyBackend, Spaces
from penstock.updates.made_up import made_up_inputs
from tests.algorithms.made_up_steps import first_state, name_of
from tests.algorithms.runs import LANES, RUNS, STEPS
from tests.planned import prepared

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
SIZES = (4, 1, 3, 7, 4)
"""Of batches, in this order: some are a power of two, and 3 comes where 4 has left its rows."""


def answered(run: Prepared, backend: PolicyBackend, inputs: Arrays) -> Arrays:
    """What the policy answers to these inputs: the action, the algorithm's own fields, and the carry."""
    count = len(inputs["explore"])
    specs = rollout_specs(run.profile.spaces, run.spec.row, STEPS, LANES, same_step=True, carry=run.spec.policy.carry)
    action = next(part for part in specs if part.name == "action")
    out = {"action": np.zeros((count, *action.shape[2:]), action.dtype)}
    out |= {part.name: np.zeros((count, *part.shape), part.dtype) for part in (*run.spec.row, *run.spec.policy.carry)}
    backend.act(inputs, out)
    return out


def inputs_of(run: Prepared, count: int, seed: int) -> Arrays:
    generator = np.random.default_rng(seed)
    made = varied(run.profile.spaces, made_up_inputs(run.spec, run.profile.spaces, count), generator)
    return {**made, "noise": generator.random(made["noise"].shape, np.float32)}


@pytest.mark.parametrize("settings", RUNS, ids=name_of)
def test_an_answer_is_that_of_the_same_policy_without_a_graph(
    settings: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # cuDNN's convolutions round by themselves, for each size of a batch in another way.
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    run = prepared(**settings, device="cuda")
    learn, spaces, config = run.algorithm.learn, run.profile.spaces, run.config.algorithm
    captured, plain = build(learn, spaces, config, "cuda"), TorchPolicy(load_functions(learn)(spaces, config).act, CUDA)
    assert isinstance(captured, CapturedPolicy)
    published = {part.name: first_state(run)[part.name] for part in run.spec.policy.published()}
    near = 2e-2 if "precision" in settings else 1e-5
    for seed, count in enumerate(SIZES):
        for backend in (captured, plain):
            backend.load({name: values * (1 + seed) for name, values in published.items()})
        inputs = inputs_of(run, count, seed)
        expected = answered(run, plain, inputs)
        _reuse_free_memory()
        for name, values in answered(run, captured, inputs).items():
            np.testing.assert_allclose(values, expected[name], rtol=near, atol=near, err_msg=name)
    assert captured.in_graphs


@pytest.mark.parametrize("sizes", ["none", (2, 6)], ids=str)
def test_padding_changes_no_bit_of_the_rows_before_it(sizes: Any) -> None:
    run = prepared(**RUNS[0], device="cuda")
    learn, spaces, config = run.algorithm.learn, run.profile.spaces, run.config.algorithm
    published = {part.name: first_state(run)[part.name] for part in run.spec.policy.published()}
    used = build(learn, spaces, config, "cuda", sizes)
    for seed, count in enumerate(SIZES):
        inputs = inputs_of(run, count, seed)
        # Its padding holds zeros, and that of the other earlier rows.
        fresh = build(learn, spaces, config, "cuda", sizes)
        for backend in (used, fresh):
            backend.load(published)
        expected = answered(run, fresh, inputs)
        for name, values in answered(run, used, inputs).items():
            np.testing.assert_array_equal(values, expected[name], err_msg=name)
    assert isinstance(used, CapturedPolicy)
    made = {"none": {4, 1, 3, 7}, (2, 6): {6, 2, 12}}
    assert {rows for rows, _ in used._batches} == made[sizes]


def _reuse_free_memory() -> None:
    """Write NaN over memory of the GPU that nobody has, then give it back to the driver."""
    gc.collect()
    full = [torch.full((size,), torch.nan, device=CUDA) for size in (8, 128, 4096, 1 << 18) for _ in range(64)]
    del full
    torch.cuda.empty_cache()


def build_waiting(spaces: Spaces, config: object) -> Algorithm:
    """Its ``act`` reads a number from the GPU, which no CUDA graph can."""
    del spaces, config

    def act(published: Tensors, inputs: Tensors) -> Tensors:
        return {"action": inputs["obs"] * (2.0 if published["scale"].item() > 1 else 1.0)}

    return Algorithm(act, dict, dict, ())


def test_a_policy_that_waits_for_the_gpu_acts_without_a_graph() -> None:
    obs = Box((2,), "float32", (-1.0,), (1.0,))
    backend = build(f"{__name__}:build_waiting", Spaces((("obs", obs),), obs), None, "cuda")
    assert isinstance(backend, CapturedPolicy)
    out = {"action": np.zeros((3, 2), np.float32)}
    for scale, expected in ((0.0, 1.0), (5.0, 2.0), (0.0, 1.0)):
        backend.load({"scale": np.array([scale], np.float32)})
        backend.act({"obs": np.ones((3, 2), np.float32), "explore": np.zeros(3, np.float32)}, out)
        np.testing.assert_array_equal(out["action"], np.full((3, 2), expected))
    assert not backend.in_graphs
