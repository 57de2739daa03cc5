"""A centralised critic: fields that only the critic sees."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch

from penstock.algorithms.ppo.spec import PPOConfig, policy_graph
from penstock.errors import ConfigError
from penstock.inference.onnx import export
from penstock.policies import Branch
from penstock.policies.critic_fields import deployed
from penstock.policies.native import supports, supports_update
from penstock.torch_networks.policy import Policy
from penstock.types import Box, Composite, Discrete, Spaces

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


def uneven(graph):
    """Parameters and statistics of which no two are alike, so that a wrong column shows."""
    random = np.random.default_rng(2)
    found = {spec.name: random.uniform(0.5, 2.0, spec.shape).astype(spec.dtype) for spec in graph.statistics()}
    return found | {
        network.name: random.normal(0.0, 0.5, network.num_parameters).astype(np.float32) for network in graph.networks
    }


MASK = Box((3,), "uint8", (0.0,), (1.0,))
WITH_IMAGE = Spaces((("obs.image", IMAGE), *TEAM.obs), Discrete(3))
POSES = Composite(((("kind",), Discrete(3)), (("turn",), VECTOR)))
CASES = {
    "mlp": (TEAM, {}),
    "mlp, normalised": (TEAM, {"normalize_obs": True, "normalize_value": True}),
    "gru, normalised": (TEAM, {"model": "gru", "memory_size": 4, "normalize_obs": True}),
    "resnet": (WITH_IMAGE, {"model": "resnet"}),
    "an image for the critic": (WITH_IMAGE, {"critic_obs": ("image", "state"), "normalize_obs": True}),
    "nothing to normalise": (WITH_IMAGE, {"critic_obs": ("own", "sign", "state"), "normalize_obs": True}),
    "a box": (replace(TEAM, action=VECTOR), {}),
    "parts": (replace(TEAM, action=POSES), {}),
    "masked": (Spaces((("action_mask", MASK), *TEAM.obs), Discrete(3), "action_mask"), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_in_production_the_policy_takes_what_the_actor_sees_and_acts_as_it_was_trained(name):
    spaces, settings = CASES[name]
    graph = policy_graph(spaces, PPOConfig(**{"critic_obs": ("state",), **settings}))
    found, record = deployed(graph, spaces), uneven(graph)
    unread = [field for field, _ in spaces.obs if field.removeprefix("obs.") in settings.get("critic_obs", ("state",))]
    assert [field for field, _ in found.spaces.unread] == unread
    assert found.spaces.sent() == spaces
    assert "value" not in found.graph.outputs
    given = rows(spaces)
    if graph.carry:
        given["first"] = np.zeros(5, np.bool_)
        given |= {spec.name: np.ones((5, *spec.shape), np.float32) for spec in graph.carry}
    acting = found.record(record)
    session = onnxruntime.InferenceSession(export(found.graph, found.spaces, acting))
    taken, outputs = ([port.name for port in ports] for ports in (session.get_inputs(), session.get_outputs()))
    assert not set(taken) & {*unread, *(spec.name for spec in graph.carry if ".critic." in spec.name)}
    seen = {field: given[field] for field in taken}
    whole = onnxruntime.InferenceSession(export(graph, spaces, record))
    wanted = dict(zip(outputs, whole.run(outputs, given), strict=True))
    for output, values in zip(outputs, session.run(outputs, seen), strict=True):
        np.testing.assert_allclose(values, wanted[output], rtol=1e-5, atol=1e-5, err_msg=output)
    greedy = {"noise": np.zeros((5, *graph.noise.shape), np.float32), "explore": np.zeros(5, np.float32)}
    answered = Policy(found.graph).act(tensors(acting), tensors(seen | greedy))
    np.testing.assert_allclose(answered["log_prob"].numpy(), wanted["log_prob"], rtol=1e-5, atol=1e-5)


def tensors(arrays):
    return {name: torch.from_numpy(np.asarray(values)) for name, values in arrays.items()}


def test_a_policy_whose_actor_sees_all_is_the_same_in_production():
    graph = policy_graph(TEAM, PPOConfig())
    found, record = deployed(graph, TEAM), published(graph)
    assert found.graph is graph
    assert found.spaces is TEAM
    assert found.record(record) is record


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
