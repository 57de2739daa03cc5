"""The loss of A2C and A3C by hand, in torch and natively."""

import math
from types import ModuleType

import numpy as np
import pytest
import torch

from penstock.algorithm import StreamShape
from penstock.algorithms.a2c import fused as a2c_fused
from penstock.algorithms.a2c import learn as a2c_learn
from penstock.algorithms.a2c import spec as a2c_spec
from penstock.algorithms.a3c import fused as a3c_fused
from penstock.algorithms.a3c import learn as a3c_learn
from penstock.algorithms.a3c import spec as a3c_spec
from penstock.types import Arrays, Box, Discrete, Spaces

SPACES = Spaces((("obs", Box((1,), "float32", (-9.0,), (9.0,))),), Discrete(2))
PLAIN = {"hidden_sizes": (), "num_steps": 2, "value_coef": 0.25, "entropy_coef": 0.1}
CONFIGS = {"a2c": a2c_spec.A2CConfig(**PLAIN), "a3c": a3c_spec.A3CConfig(**PLAIN)}
LEARN: dict[str, ModuleType] = {"a2c": a2c_learn, "a3c": a3c_learn}
FUSED: dict[str, ModuleType] = {"a2c": a2c_fused, "a3c": a3c_fused}

ROWS: Arrays = {
    "obs": np.array([[1.0], [2.0], [7.0]], np.float32),
    "action": np.array([0, 1, 1]),
    "advantage": np.array([2.0, -1.0, 90.0], np.float32),
    "target": np.array([3.0, 5.0, 70.0], np.float32),
    # Nothing reads the probabilities under the policy that acted.
    "log_prob": np.array([-5.0, -6.0, -7.0], np.float32),
}
WEIGHT = np.array([1.0, 1.0, 0.0], np.float32)
"""The last row is padding."""

# One layer without weights: the policy has probabilities 3/4 and 1/4 in each row, and each value is 2.
# Policy loss: -(2 log 3/4 - log 1/4) / 2 = log 2/3. Value loss: ((2 - 3)^2 + (2 - 5)^2) / 2 = 5.
ENTROPY = math.log(4) - 0.75 * math.log(3)
LOSSES = {"policy_loss": math.log(2 / 3), "value_loss": 5.0, "entropy": ENTROPY}
# Of the logit of action 0, in each row: -A (1 - 3/4) = -1/2 for action 0, and -A (0 - 3/4) = -3/4 for action 1.
# Of minus 0.1 times the entropy, in each row: 0.1 * 3/4 (log 3/4 + ENTROPY) = 0.1 * 3/16 log 3.
# A bias has their mean over the rows; a weight has the mean of the products with the observations, 1 and 2.
SPREAD = 0.1 * 3 / 16 * math.log(3)
BIAS = (-1 / 2 - 3 / 4) / 2 + SPREAD
SLOPE = (-1 / 2 * 1 - 3 / 4 * 2) / 2 + SPREAD * (1 + 2) / 2
# Of 0.25 (V - R)^2: 0.25 * 2 (2 - 3) = -1/2 and 0.25 * 2 (2 - 5) = -3/2.
CRITIC = [(-1 / 2 * 1 - 3 / 2 * 2) / 2, (-1 / 2 - 3 / 2) / 2]
GRADIENTS = {"actor": [SLOPE, -SLOPE, BIAS, -BIAS], "critic": CRITIC}
NORM = math.sqrt(sum(number**2 for vector in GRADIENTS.values() for number in vector))


def biased(algo: str) -> Arrays:
    """A state with those probabilities and values."""
    state = {"a2c": a2c_spec, "a3c": a3c_spec}[algo].init_state(SPACES, CONFIGS[algo], 0)
    actor, critic = [0.0, 0.0, math.log(3), 0.0], [0.0, 2.0]
    return {**state, "actor": np.array(actor, np.float32), "critic": np.array(critic, np.float32)}


@pytest.mark.parametrize("algo", CONFIGS)
def test_the_loss_of_two_rows_by_hand(algo: str) -> None:
    algorithm = LEARN[algo].build(SPACES, CONFIGS[algo])
    state = {name: torch.from_numpy(values) for name, values in biased(algo).items()}
    rows = {name: torch.from_numpy(values) for name, values in {**ROWS, "weight": WEIGHT}.items()}
    (phase,) = algorithm.phases
    found = phase.gradients(state, rows, {})
    metrics = {name: float(value) for name, value in found.metrics.items()}
    assert metrics == pytest.approx({**LOSSES, "grad_norm": NORM, "lr": 7e-4}, rel=1e-5)
    assert {name: values.tolist() for name, values in found.gradients.items()} == {
        name: pytest.approx(expected, rel=1e-5) for name, expected in GRADIENTS.items()
    }


@pytest.mark.parametrize("algo", CONFIGS)
def test_the_native_loss_of_two_rows_by_hand(algo: str) -> None:
    fused, state = FUSED[algo].build(SPACES, CONFIGS[algo]), biased(algo)
    update = fused.update(StreamShape(slots=1, steps=2, lanes=1), 1)
    update.pack(state, ROWS, 0, 3)
    assert update.across_minibatch(np.arange(3), lambda values: float(values.mean())) is None
    found, rows = update.gradients(state, np.arange(3), WEIGHT, None)
    assert rows == 2.0
    assert {name: values.tolist() for name, values in found.items()} == {
        name: pytest.approx(expected, rel=1e-5) for name, expected in GRADIENTS.items()
    }
    update.metrics()
    update.run(state, np.arange(3)[None], WEIGHT[None])
    assert update.metrics() == pytest.approx({**LOSSES, "grad_norm": NORM, "lr": 7e-4}, rel=1e-5)
