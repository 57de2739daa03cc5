"""The metrics of an update: their names in a report, and what ends a run."""

import pytest

from penstock.algorithms.ppo.spec import PPOConfig, policy_graph
from penstock.errors import BadDataError
from penstock.nodes.learner.losses import loss_values, refuse_bad_losses
from penstock.types import Box, Discrete, Spaces

POLICY = policy_graph(Spaces((("obs", Box((3,), "float32", (-1.0,), (1.0,))),), Discrete(2)), PPOConfig())


def test_losses_and_scales_have_short_names_in_a_report() -> None:
    means = {"value_loss": 1.0, "grad_norm": 2.0, "loss_scale": 3.0, "actor_loss_scale": 4.0, "reward_scale": 5.0}
    assert loss_values(means) == {
        "loss/value": 1.0,
        "loss/grad_norm": 2.0,
        "loss/scale": 3.0,
        "loss/actor_scale": 4.0,
        "loss/reward_scale": 5.0,
    }


@pytest.mark.parametrize("name", ["loss_scale", "actor_loss_scale"])
def test_a_scale_that_has_become_0_ends_the_run(name: str) -> None:
    """No step can follow any more. A layer that overflows on the way forward does it if the loss hides that."""
    refuse_bad_losses({name: 2.0**-149}, 3, POLICY)
    text = f"update 3: {name} is 0, because every gradient of that loss overflows in float16; .*--precision bfloat16"
    with pytest.raises(BadDataError, match=text) as caught:
        refuse_bad_losses({name: 0.0}, 3, POLICY)
    assert "\n" not in str(caught.value)


def test_a_scale_of_an_algorithm_of_ones_own_may_be_0() -> None:
    refuse_bad_losses({"reward_scale": 0.0, "scale": 0.0}, 3, POLICY)
