"""A centralised critic: fields that only the critic sees."""

import numpy as np
import onnxruntime
import pytest
import torch

from penstock.algorithms.ppo.spec import PPOConfig, policy_graph
from penstock.errors import ConfigError
from penstock.inference.onnx import export
from penstock.policies import Branch
from penstock.policies.native import supports, supports_update
from penstock.torch_networks.policy import Policy
from penstock.types import Box, Discrete, Spaces

VECTOR = Box((3,), "float32", (-1.0,), (1.0,))
IMAGE = Box((12, 12, 3), "uint8", (0.0,), (255.0,))
STATE = Box((4,), "float32", (), ())
TEAM = Spaces((("obs.own", VECTOR), ("obs.sign", Discrete(2)), ("obs.state", STATE)), Discrete(3))


def rows(spaces, count=5):
    """Random observations, the same at every call."""
    random = np.random.default_rng(0)
    return {
        name: random.integers(space.n, size=count)
        if isinstance(space, Discrete)
        else random.integers(255, size=(count, *space.shape), dtype=np.uint8)
        if space.dtype == "uint8"
        else random.normal(size=(count, *space.shape)).astype(np.float32)
        for name, space in spaces.obs
    }


def published(graph):
    """A first state, with statistics of 1."""
    random = np.random.default_rng(1)
    found = {spec.name: np.ones(spec.shape, spec.dtype) for spec in graph.statistics()}
    return found | {network.name: network.initial(random) for network in graph.networks}


def judged(graph, obs):
    given = {name: torch.from_numpy(values) for name, values in obs.items()}
    if graph.carry:
        given["first"] = torch.ones(5, dtype=torch.bool)
        given |= {spec.name: torch.zeros(5, *spec.shape) for spec in graph.carry}
    held = {name: torch.from_numpy(np.asarray(values)) for name, values in published(graph).items()}
    found = Policy(graph)(held, given)
    return found.distribution.log_prob(torch.ones(5, dtype=torch.int64)).numpy(), found.value.numpy()


def test_actor_and_critic_see_fields_of_their_own():
    graph = policy_graph(TEAM, PPOConfig(critic_obs=("state",), hidden_sizes=(8,)))
    assert graph.fields == ("obs.own", "obs.sign", "obs.state")
    assert graph.actor.branches == (Branch(("obs.own", "obs.sign"), (), 5),)
    assert graph.actor.num_parameters == 5 * 8 + 8 + 8 * 3 + 3
    assert graph.critic is not None
    assert graph.critic.num_parameters == 9 * 8 + 8 + 8 + 1
    # The native kernels give both networks the same inputs.
    assert not supports(graph)
    assert not supports_update(graph)


@pytest.mark.parametrize("model", ["mlp", "gru", "resnet"])
@pytest.mark.parametrize("normalize_obs", [False, True])
def test_the_actors_output_does_not_change_with_the_field(model, normalize_obs):
    spaces = TEAM if model != "resnet" else Spaces((("obs.image", IMAGE), *TEAM.obs), Discrete(3))
    graph = policy_graph(spaces, PPOConfig(critic_obs=("state",), model=model, normalize_obs=normalize_obs))
    obs = rows(spaces)
    chances, values = judged(graph, obs)
    others, changed = judged(graph, {**obs, "obs.state": -obs["obs.state"]})
    np.testing.assert_array_equal(chances, others)
    assert (values != changed).all()
    moved, _ = judged(graph, {**obs, "obs.own": -obs["obs.own"]})
    assert (chances != moved).all()


def test_only_the_critic_may_see_the_image():
    spaces = Spaces((("obs.image", IMAGE), ("obs.own", VECTOR)), Discrete(3))
    graph = policy_graph(spaces, PPOConfig(critic_obs=("image",)))
    obs = rows(spaces)
    chances, values = judged(graph, obs)
    others, changed = judged(graph, {**obs, "obs.image": 255 - obs["obs.image"]})
    np.testing.assert_array_equal(chances, others)
    assert (values != changed).all()


def test_an_exported_policy_acts_alike_with_zeros_in_the_field():
    graph = policy_graph(TEAM, PPOConfig(critic_obs=("state",)))
    session = onnxruntime.InferenceSession(export(graph, TEAM, published(graph)))
    obs = rows(TEAM)
    zeros = {**obs, "obs.state": np.zeros((5, 4), np.float32)}
    found, others = (session.run(["action", "value"], given) for given in (obs, zeros))
    np.testing.assert_array_equal(found[0], others[0])
    assert (found[1] != others[1]).all()


@pytest.mark.parametrize(
    ("spaces", "settings", "text"),
    [
        (Spaces((("obs", VECTOR),), Discrete(3)), {}, "the observation is neither: leave it out"),
        (TEAM, {"critic_obs": ("stat",)}, "the policy sees no field stat; did you mean state?"),
        (TEAM, {"critic_obs": ("own", "sign", "state")}, "leaves the actor nothing to see; keep at least one of own"),
        (TEAM, {"model": "lstm", "share_memory": True}, "leave --share_memory off"),
        (TEAM, {"model": '{"fields": {}}'}, r"a description \(--model FILE.toml\) names its fields itself"),
        (TEAM, {"model": "some.module:name"}, "--model some.module:name names its fields itself"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(spaces, settings, text):
    with pytest.raises(ConfigError, match=f"--critic_obs.*{text}"):
        policy_graph(spaces, PPOConfig(**{"critic_obs": ("state",), **settings}))
