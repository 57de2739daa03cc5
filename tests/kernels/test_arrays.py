"""Arrays at the border of native code: none is copied unseen, and none keeps what an earlier call has left in it."""

import numpy as np
import pytest

from penstock.kernels import _native
from penstock.kernels.actions import environment_array, to_environment
from penstock.kernels.policy import HeadLayout, NetworkLayout, PolicyKernel, PolicyLayout
from penstock.types import Box

WRONG = {"strided": np.zeros((4, 2), np.float32)[:, 0], "float64": np.zeros(4)}


@pytest.mark.parametrize("out", WRONG.values(), ids=WRONG)
def test_what_is_written_into_is_no_copy(out) -> None:
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _native.elementwise("tanh", out)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _native.noise("normal", 1, np.arange(4), 0, out)


def test_a_layer_reads_nothing_that_another_call_has_left() -> None:
    """Of two narrow layers, the second reads whole vectors, of which the first writes a part."""
    generator = np.random.default_rng(0)
    actor = (("linear", 4, 3, "tanh"), ("linear", 3, 3, "tanh"), ("linear", 3, 2, "none"))
    critic = (("linear", 4, 64, "tanh"), ("linear", 64, 64, "tanh"), ("linear", 64, 1, "none"))
    sizes = [sum((inputs + 1) * outputs for _, inputs, outputs, _ in layers) for layers in (actor, critic)]
    head = HeadLayout("Gaussian", 2, sizes[0], 1, 0.0, 0.0, False)
    networks = NetworkLayout("actor", actor), NetworkLayout("critic", critic)
    kernel = PolicyKernel(PolicyLayout(("obs",), ((False, 4, 0),), *networks, head, 2, False, False, ()))
    flat = {"actor": sizes[0] + 2, "critic": sizes[1]}
    kernel.load({name: generator.normal(size=size).astype(np.float32) for name, size in flat.items()})

    def acted(seen: float, *more: str) -> np.ndarray:
        out = {"action": np.zeros((1, 2), np.float32), **{name: np.zeros(1, np.float32) for name in more}}
        noise = {"noise": np.zeros((1, 2), np.float32), "explore": np.ones(1, np.float32)}
        kernel.act({"obs": np.full((1, 4), seen, np.float32), **noise}, out)
        return out["action"]

    before = acted(1.0)
    assert np.isnan(acted(np.nan, "log_prob", "value")).all()
    assert np.array_equal(acted(1.0), before)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint8"])
def test_the_largest_action_of_a_box_of_integers_is_near_its_bound(dtype: str) -> None:
    """No float is 2^63 - 1: the next one, 2^63, is no int64, and became the smallest one."""
    limits = np.iinfo(dtype)
    space = Box((1,), dtype, (float(limits.min),), (float(limits.max),))
    head = HeadLayout("Deterministic", 1, 0, 1, 0.0, 0.0, False)
    actor = NetworkLayout("actor", (("linear", 1, 1, "none"),))
    kernel = PolicyKernel(PolicyLayout(("obs",), ((False, 1, 0),), actor, None, head, 1, False, False, ()))
    kernel.load({"actor": np.array([0.0, 50.0], np.float32)})
    given, out = environment_array(space, 1), {"action": np.zeros((1, 1, 1), np.float32)}
    obs, lanes, explore = np.zeros((1, 1, 1), np.float32), np.zeros(1, np.int64), np.zeros(1, np.float32)
    kernel.bind({"obs": obs}, out, lanes=lanes, explore=explore, environment=given, space=space).act(0, 0)
    converted = to_environment(out["action"][0], space, environment_array(space, 1))
    assert given[0, 0] == converted[0, 0]
    assert int(given[0, 0]) == pytest.approx(limits.max, rel=1e-15)
