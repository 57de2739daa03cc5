"""The gradient of the whole loss: against finite differences in float64, and float32 against float64."""

import numpy as np
import pytest
import torch

from penstock.algorithms.a2c import learn as a2c_learn
from penstock.algorithms.a2c import spec as a2c_spec
from penstock.algorithms.ppo import learn as ppo_learn
from penstock.algorithms.ppo import spec as ppo_spec
from penstock.algorithms.ppo.spec import PPOConfig, policy_graph
from penstock.types import Box, Composite, Discrete, MultiDiscrete, Spaces
from tests.inference import reference

VECTOR = Box((3,), "float32", (-1.0,), (1.0,))
GAUSSIAN = Spaces((("obs", VECTOR),), Box((2,), "float32", (-1.0,), (1.0,)))
CATEGORICAL = Spaces((("obs.at", Discrete(3)), ("obs.of", VECTOR)), Discrete(4))
SEVERAL = Spaces((("obs", VECTOR),), MultiDiscrete((3, 4, 3), (0, 0, 0), (3,), "int64"))
MIXED = Spaces(
    (("obs", VECTOR),),
    Composite(
        (
            (("which",), Discrete(3)),
            (("how",), Box((2,), "float32", (-1.0,), (1.0,))),
            (("more",), MultiDiscrete((3, 4), (0, 0), (2,), "int64")),
        )
    ),
)


def with_mask(spaces):
    mask = ("obs.action_mask", Box((sum(spaces.action.choices),), "uint8", (0.0,), (1.0,)))
    return Spaces((*spaces.obs, mask), spaces.action, "obs.action_mask")


ALGORITHMS = {"ppo": (ppo_learn, ppo_spec, PPOConfig), "a2c": (a2c_learn, a2c_spec, a2c_spec.A2CConfig)}


def minibatch(spaces, size, dtype):
    """Rows as after a few epochs: ratios around 1, some of them clipped, and two rows of padding."""
    generator = torch.Generator().manual_seed(3)
    found = {}
    for part in (*spaces.obs_specs(), spaces.action_spec()):
        if part.name == spaces.mask:
            masks = reference.masks(spaces.action.choices, np.random.default_rng(5), size)
            found[part.name] = torch.from_numpy(masks)
        elif part.dtype == "int64":
            found[part.name] = torch.randint(0, 3, (size, *part.shape), generator=generator)
        else:
            found[part.name] = torch.randn(size, *part.shape, generator=generator, dtype=torch.float64).to(dtype)
    for name in ("advantage", "target"):
        found[name] = torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)
    found["weight"] = torch.ones(size, dtype=dtype)
    found["weight"][-2:] = 0.0
    return found


def problem(algorithm, spaces, dtype, **settings):
    """State and minibatch in ``dtype``, with old log-probabilities near the policy's own."""
    module, spec, kind = ALGORITHMS[algorithm]
    config = kind(hidden_sizes=(5, 4), **settings)
    built = module.build(spaces, config)
    state = {}
    for name, values in spec.init_state(spaces, config, 1).items():
        tensor = torch.from_numpy(values)
        state[name] = tensor.to(dtype) if tensor.dtype == torch.float32 else tensor
    generator = torch.Generator().manual_seed(4)
    for name in ("actor", "critic"):
        state[name] = state[name] + 0.2 * torch.randn(state[name].shape, generator=generator, dtype=torch.float64).to(
            dtype
        )
    if "value_mean" in state:
        state["value_mean"], state["value_var"] = torch.tensor(0.3).double(), torch.tensor(2.0).double()
    rows = minibatch(spaces, 16, dtype)
    inputs = {
        **rows,
        "noise": torch.randn(16, *policy_graph(spaces, config).noise.shape, generator=generator, dtype=dtype),
        "explore": torch.full((16,), 0.5, dtype=dtype),
    }
    shift = 0.3 * torch.randn(16, generator=generator, dtype=torch.float64).to(dtype)
    acted = built.act(state, inputs)
    rows["action"], rows["log_prob"] = acted["action"], acted["log_prob"] + shift
    return built, module, state, rows


CASES = [
    ("ppo", GAUSSIAN, {}),
    ("ppo", GAUSSIAN, {"normalize_value": True, "normalize_obs": True}),
    ("ppo", CATEGORICAL, {"normalize_advantage": False}),
    ("a2c", GAUSSIAN, {}),
    ("a2c", CATEGORICAL, {"normalize_advantage": True}),
    ("ppo", SEVERAL, {}),
    ("ppo", MIXED, {}),
    ("ppo", with_mask(CATEGORICAL), {}),
    ("ppo", with_mask(SEVERAL), {}),
    ("a2c", with_mask(MIXED), {"normalize_obs": True}),
]


@pytest.mark.parametrize(("algorithm", "spaces", "settings"), CASES)
def test_gradient_agrees_with_finite_differences(algorithm, spaces, settings):
    built, _, state, rows = problem(algorithm, spaces, torch.float64, **settings)
    phase = built.phases[0]
    found = phase.gradients(state, rows, {})
    found_by, _ = phase.gradients.args  # `scaled` is around PPO's own gradients
    *_, loss = found_by.args
    step = 1e-6
    for name, gradient in found.gradients.items():
        for position in range(0, gradient.numel(), 3):
            bump = torch.zeros_like(gradient)
            bump[position] = step
            up, _ = loss({**state, name: state[name] + bump}, rows)
            down, _ = loss({**state, name: state[name] - bump}, rows)
            difference = float(up - down) / (2.0 * step)
            assert float(gradient[position]) == pytest.approx(difference, rel=1e-5, abs=1e-8), (name, position)


@pytest.mark.parametrize(("algorithm", "spaces", "settings"), CASES)
def test_float32_agrees_with_float64(algorithm, spaces, settings):
    built, _, state, rows = problem(algorithm, spaces, torch.float64, **settings)

    def single(tensors):
        return {name: value.float() if value.dtype == torch.float64 else value for name, value in tensors.items()}

    keep = {name: value for name, value in state.items() if name not in ("actor", "critic")}
    exact = built.phases[0].gradients(state, rows, {}).gradients
    rough = built.phases[0].gradients(
        {**single(state), **keep, **single({n: state[n] for n in ("actor", "critic")})}, single(rows), {}
    )
    for name, gradient in exact.items():
        error = (rough.gradients[name].double() - gradient).norm() / gradient.norm()
        assert float(error) < 1e-5, name


def test_padding_changes_nothing():
    built, _, state, rows = problem("ppo", GAUSSIAN, torch.float64)
    padded = built.phases[0].gradients(state, rows, {})
    alone = built.phases[0].gradients(state, {name: values[:-2] for name, values in rows.items()}, {})
    for name, gradient in alone.gradients.items():
        torch.testing.assert_close(padded.gradients[name], gradient)
    for name, value in alone.metrics.items():
        torch.testing.assert_close(padded.metrics[name], value)


def test_the_old_policy_is_where_the_surrogate_starts():
    """With the parameters that acted, ratios are 1. No row is clipped; the gradient is the plain policy gradient."""
    built, module, state, rows = problem("ppo", GAUSSIAN, torch.float64, entropy_coef=0.0, normalize_advantage=False)
    found_by, _ = built.phases[0].gradients.args
    *_, loss = found_by.args
    policy, config = loss.args
    distribution, *_ = policy(state, rows)
    rows["log_prob"] = distribution.log_prob(rows["action"]).detach()
    found = built.phases[0].gradients(state, rows, {})
    assert float(found.metrics["approx_kl"]) == pytest.approx(0.0, abs=1e-12)
    assert float(found.metrics["clip_fraction"]) == 0.0
    plain, plain_module, plain_state, _ = problem("a2c", GAUSSIAN, torch.float64, entropy_coef=0.0)
    assert plain_module is not module
    expected = plain.phases[0].gradients({**plain_state, **state}, rows, {}).gradients
    torch.testing.assert_close(found.gradients["actor"], expected["actor"])
    assert config.clip_param == 0.2


def test_update_clips_over_all_networks_and_follows_the_schedule():
    built, _, state, rows = problem("ppo", GAUSSIAN, torch.float64, max_grad_norm=1e-3, lr_schedule="linear", lr=0.1)
    phase = built.phases[0]
    found = phase.gradients(state, rows, {})
    norm = torch.cat([found.gradients["actor"], found.gradients["critic"]]).norm()
    assert float(found.metrics["grad_norm"]) == pytest.approx(float(norm))
    changed = phase.apply({**state, "progress": torch.tensor(0.25).double()}, found.gradients)
    # The first moment is a tenth of the clipped gradient.
    for name in ("actor", "critic"):
        expected = 0.1 * found.gradients[name] * (1e-3 / norm)
        torch.testing.assert_close(changed[f"adam_m.{name}"], expected, rtol=1e-4, atol=0.0)
    # Adam's first step is lr * g / (|g| + eps); lr = 0.1 * (1 - 0.25).
    clipped = 1e-3 / norm * found.gradients["actor"]
    step = 0.075 * clipped / (clipped.abs() + 1e-5)
    torch.testing.assert_close(state["actor"] - changed["actor"], step, rtol=1e-3, atol=1e-12)
    assert int(changed["adam_step"]) == 1


def test_a_scalar_box_and_a_matrix_box_are_actions_too():
    for shape in ((), (2, 3)):
        spaces = Spaces((("obs", VECTOR),), Box(shape, "float32", (-1.0,), (1.0,)))
        config = PPOConfig(hidden_sizes=(4,))
        built, first = ppo_learn.build(spaces, config), ppo_spec.init_state(spaces, config, 0)
        state = {name: torch.from_numpy(np.asarray(values)) for name, values in first.items()}
        size = int(np.prod(shape))
        inputs = {"obs": torch.zeros(5, 3), "noise": torch.ones(5, size), "explore": torch.ones(5)}
        outputs = built.act(state, inputs)
        assert outputs["action"].shape == (5, *shape)
        rows = {
            **outputs,
            "obs": inputs["obs"],
            "advantage": torch.ones(5),
            "target": torch.ones(5),
            "weight": torch.ones(5),
        }
        found = built.phases[0].gradients(state, rows, {})
        assert float(found.metrics["approx_kl"]) == pytest.approx(0.0, abs=1e-6)


def test_an_image_policy_learns_both_heads_through_one_trunk():
    spaces = Spaces((("obs", Box((36, 40, 3), "uint8", (0.0,), (255.0,))),), Discrete(2))
    config = PPOConfig(max_grad_norm=1.0)
    built = ppo_learn.build(spaces, config)
    state = {name: torch.from_numpy(values) for name, values in ppo_spec.init_state(spaces, config, 0).items()}
    assert "critic" not in state
    image = torch.randint(0, 256, (6, 36, 40, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    inputs = {"obs": image, "noise": torch.zeros(6, 2), "explore": torch.ones(6)}
    rows = {
        **built.act(state, inputs),
        "obs": image,
        "advantage": torch.tensor([1.0, -1.0] * 3),
        "weight": torch.ones(6),
    }
    rows["target"] = rows["value"] + 5.0
    phase = built.phases[0]
    first = phase.gradients(state, rows, {})
    assert float(first.metrics["value_loss"]) == pytest.approx(25.0, rel=1e-4)
    for _ in range(20):
        state.update(phase.apply(state, phase.gradients(state, rows, {}).gradients))
    assert float(phase.gradients(state, rows, {}).metrics["value_loss"]) < 20.0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_choice_that_is_never_possible_gets_no_gradient(algorithm):
    spaces = with_mask(SEVERAL)
    built, _, state, rows = problem(algorithm, spaces, torch.float64, entropy_coef=0.1)
    # The choices of the second element begin at 3. Its choice 2 is number 5 of all.
    rows["obs.action_mask"][:, 5] = 0
    rows["obs.action_mask"][:, 3] = 1
    rows["action"][:, 1] = 0
    graph = policy_graph(spaces, ALGORITHMS[algorithm][2](hidden_sizes=(5, 4)))
    gradient = built.phases[0].gradients(state, rows, {}).gradients["actor"]
    parts = {
        part.name: gradient[part.offset :][: int(np.prod(part.shape))].view(part.shape) for part in graph.actor.slices()
    }
    weight, bias = parts["4.weight"], parts["4.bias"]
    assert (weight[:, 5] == 0.0).all()
    assert bias[5] == 0.0
    assert (weight[:, [0, 3, 4, 6]] != 0.0).any(0).all()
