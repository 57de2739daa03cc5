"""The scale of a loss in float16: by hand, beside torch's own, and in PPO's step."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.algorithms.ppo import learn
from penstock.algorithms.ppo.spec import PPOConfig, init_state, policy_graph, spec
from penstock.errors import ConfigError
from penstock.ops.loss_scaling import GROWTH_STEPS, LossScale, finite, finite_or_zero
from penstock.planning import Prepared, plan
from penstock.torch_networks.gradients import gradients_of
from penstock.types import Box, Discrete, Spaces
from tests.planned import prepared

IMAGES = Spaces((("obs", Box((1, 36, 36), "uint8", (0.0,), (255.0,))),), Discrete(2))
CONFIG = PPOConfig(precision="float16", max_grad_norm=1e9)


def scale_of(scale: float, taken: int) -> LossScale:
    return LossScale(torch.tensor(scale), torch.tensor(taken))


@pytest.mark.parametrize(
    ("before", "sound", "after"),
    [
        ((1024.0, 5), True, (1024.0, 6)),
        # Halved, and the count begins anew.
        ((1024.0, 5), False, (512.0, 0)),
        ((1024.0, GROWTH_STEPS - 1), True, (2048.0, 0)),
        ((1024.0, GROWTH_STEPS - 1), False, (512.0, 0)),
        # 2^128 is infinite in float32.
        ((2.0**127, GROWTH_STEPS - 1), True, (2.0**127, 0)),
    ],
)
def test_the_next_scale_by_hand(before, sound: bool, after) -> None:
    found = scale_of(*before).after(torch.tensor(sound), torch.tensor(before[0]))
    assert (float(found.scale), int(found.taken)) == after
    assert (found.scale.dtype, found.taken.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize(
    ("used", "sound", "after"),
    [
        # Found before the scale was halved, once or twice: it overflowed by a larger scale than this one.
        (2048.0, False, (1024.0, 0)),
        (4096.0, False, (1024.0, 0)),
        # Found before it doubled: what overflows by half of this scale overflows by this one as well.
        (512.0, False, (512.0, 0)),
        # The mean of equal scales of three learners, rounded.
        (float(np.nextafter(np.float32(1024.0), np.float32(np.inf))), False, (512.0, 0)),
        (2048.0, True, (1024.0, 6)),
    ],
)
def test_a_gradient_that_overflowed_by_a_larger_scale_halves_no_scale(used: float, sound: bool, after) -> None:
    found = scale_of(1024.0, 5).after(torch.tensor(sound), torch.tensor(used))
    assert (float(found.scale), int(found.taken)) == after


def test_the_scale_goes_as_that_of_torch() -> None:
    theirs = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=GROWTH_STEPS)
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    ours, overflows = scale_of(65536.0, 0), {0, 1, 700, 2702, 2703}
    for step in range(4800):
        gradient = torch.tensor([np.inf if step in overflows else 1.0])
        theirs.scale(torch.zeros(1))
        parameter.grad = gradient.clone()
        theirs.step(optimizer)
        theirs.update()
        ours = ours.after(finite([gradient]), ours.scale)
        assert float(ours.scale) == theirs.get_scale(), step
    # Five times halved, doubled by steps 701 to 2700 and 2704 to 4703.
    assert float(ours.scale) == 65536.0 / 2**5 * 2**2


def test_a_gradient_too_small_for_float16_survives_with_a_scale() -> None:
    """2^-28 is 0 in float16, whose smallest number is 2^-24. Times 1024 it is 2^-18."""
    small = torch.tensor(2.0**-14).half()

    def loss(leaves):
        return (leaves["weight"].half() * small * small).float().sum(), {}

    state = {"weight": torch.tensor([1.0, -3.0])}
    assert gradients_of(loss, state, ["weight"])[0]["weight"].tolist() == [0.0, 0.0]
    found, _ = gradients_of(loss, state, ["weight"], torch.tensor(1024.0))
    assert found["weight"].tolist() == [2.0**-28] * 2
    assert found["weight"].dtype == torch.float32


def test_infinite_and_nan_are_seen_anywhere() -> None:
    assert bool(finite([torch.ones(3), torch.zeros(2)]))
    for bad in (np.inf, -np.inf, np.nan):
        assert not bool(finite([torch.ones(3), torch.tensor([0.0, bad])]))
        assert float(finite_or_zero(torch.tensor(bad))) == 0.0
    assert float(finite_or_zero(torch.tensor(3.5))) == 3.5


def test_ppo_skips_the_step_of_an_overflow_and_takes_the_others() -> None:
    graph = policy_graph(IMAGES, CONFIG)
    arrays = init_state(IMAGES, CONFIG, 0)
    assert {"loss_scale", "loss_scale_steps"} <= {part.name for part in spec(IMAGES, CONFIG).state}
    state = {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}
    assert float(state["loss_scale"]) == 65536.0
    names = [network.name for network in graph.networks]
    sound = {name: torch.full_like(state[name], 1e-3) for name in names}
    bad = {name: values.clone() for name, values in sound.items()}
    bad[names[0]][7] = np.inf
    (phase,) = learn.build(IMAGES, CONFIG).phases
    step = phase.apply
    used = {"loss_scale": state["loss_scale"]}
    skipped = {**state, **step(state, bad | used)}
    assert (float(skipped["loss_scale"]), int(skipped["loss_scale_steps"])) == (32768.0, 0)
    for name in state.keys() - {"loss_scale"}:
        assert torch.equal(skipped[name], state[name]), name
    taken = {**skipped, **step(skipped, sound | used)}
    assert (float(taken["loss_scale"]), int(taken["loss_scale_steps"]), int(taken["adam_step"])) == (32768.0, 1, 1)
    # The step is the one that is taken in float32.
    exact = learn.apply(
        graph, PPOConfig(max_grad_norm=1e9), {k: v for k, v in state.items() if "scale" not in k}, sound
    )
    for name, values in exact.items():
        assert torch.equal(taken[name], values), name


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_float16_is_refused_where_nothing_learns_in_it_and_what_has_learned_acts_there(
    tmp_path: Path, algo: str
) -> None:
    able_to_act = prepared(algo=algo, env="tests.environments:EyeEnv", precision="float16")
    with pytest.raises(ConfigError, match="--precision float16 is for GPUs: give --device cuda, or --precision bf"):
        plan(able_to_act, tmp_path, quiet=True)


def test_float16_is_refused_with_hogwild_whose_learners_would_add_up_their_scales(tmp_path: Path) -> None:
    sharing = prepared(env="tests.environments:EyeEnv", precision="float16", learners=2, exchange="hogwild")
    with pytest.raises(ConfigError, match="--exchange hogwild adds up what learners change"):
        plan(on_gpu(sharing), tmp_path, quiet=True)


def test_float16_is_refused_with_compressed_gradients_of_a_table_as_well(tmp_path: Path) -> None:
    sharing = prepared(algo="dqn", env="CartPole-v1", precision="float16", learners=2, compress="int8")
    with pytest.raises(ConfigError, match="--compress int8 cannot encode the infinite gradients by which float16"):
        plan(on_gpu(sharing), tmp_path, quiet=True)


def on_gpu(run: Prepared) -> Prepared:
    """The same run with ``--device cuda``, on a machine without a GPU."""
    return replace(run, config=replace(run.config, run=replace(run.config.run, device="cuda")))
