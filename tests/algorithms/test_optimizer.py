"""The choice of an optimizer: the arrays of each, two steps by hand through an algorithm's phase, what is refused."""

import math

import pytest
import torch

from penstock.algorithm_lookup import find_algorithm, load_functions
from penstock.errors import ConfigError
from penstock.registry import ALGORITHMS, load
from tests.algorithms.replay_rows import CONTINUOUS, DISCRETE

LR, DECAY = 0.1, 0.5
GRADIENTS = (2.0, -1.0)
# The second step of Adam: m = 0.9 * 0.2 - 0.1 = 0.08, v = 0.999 * 0.004 + 0.001 = 0.004996, bias-corrected.
ADAM = (LR * 2.0 / 2.5, LR * (0.08 / 0.19) / (math.sqrt(0.004996 / 0.001999) + 0.5))
STEPS = {
    # name: settings, and both parameters' steps from p = 1: numbers that are weights, numbers that are not.
    "adam": ({"adam_eps": 0.5}, (1.0 - ADAM[0], 1.0 - ADAM[0] - ADAM[1]), (1.0 - ADAM[0], 1.0 - ADAM[0] - ADAM[1])),
    "adamw": (
        {"adam_eps": 0.5, "weight_decay": DECAY},
        (0.95 - ADAM[0], 0.95 * (0.95 - ADAM[0]) - ADAM[1]),
        (1.0 - ADAM[0], 1.0 - ADAM[0] - ADAM[1]),
    ),
    # m = 2, then 0.5 * 2 - 1 = 0.
    "sgd": ({"momentum": 0.5}, (0.8, 0.8), (0.8, 0.8)),
    # v = 0.04, then 0.99 * 0.04 + 0.01 = 0.0496.
    "rmsprop": (
        {"rmsprop_eps": 0.21},
        (0.6, 0.6 + 0.1 / math.sqrt(0.0496 + 0.21)),
        (0.6, 0.6 + 0.1 / math.sqrt(0.0496 + 0.21)),
    ),
}
# With a gradient that is the same everywhere, a matrix has one singular value, which begins as 1: see tests/ops.
BROUGHT_UP = 1.0
for _ in range(5):
    BROUGHT_UP = 3.4445 * BROUGHT_UP - 4.7750 * BROUGHT_UP**3 + 2.0315 * BROUGHT_UP**5
MUON = {"adam_eps": 0.5, "weight_decay": DECAY, "momentum": 0.5, "hidden_sizes": (4, 4)}
PLAIN = {"hidden_sizes": (4,), "lr": LR, "lr_schedule": "constant"}


def built(name, **settings):
    package = find_algorithm(name)
    config = package.config(**settings)
    spaces = DISCRETE if name in {"dqn", "apex", "r2d2"} else CONTINUOUS
    return load(package.spec)(spaces, config), load_functions(package.learn)(spaces, config)


def taken(name, phase, vectors, **settings):
    """Vectors that are 1 at first, after each of two steps of a phase with the same gradient everywhere, in float64."""
    spec, algorithm = built(name, **{**PLAIN, **settings})
    (apply,) = [part.apply for part in algorithm.phases if part.name == phase]
    state = {}
    for part in spec.state:
        zero = torch.zeros(part.shape, dtype=torch.int64 if part.dtype == "int64" else torch.float64)
        state[part.name] = zero + 1 if part.name.rpartition(".")[2] == part.name and part.dtype == "float32" else zero
    found = []
    for gradient in GRADIENTS:
        gradients = {vector: torch.full_like(state[vector], gradient) for vector in vectors}
        state |= apply(state, gradients)
        found.append({vector: state[vector].clone() for vector in vectors})
    return found


@pytest.mark.parametrize("optimizer", STEPS)
def test_two_steps_of_a_policy_from_a_stream_by_hand(optimizer):
    """A Gaussian's log_std lies behind the layers' numbers, and is no weight."""
    settings, weights, others = STEPS[optimizer]
    for name in ("ppo", "a2c", "impala"):
        found = taken(name, "actor_critic", ["actor", "critic"], optimizer=optimizer, max_grad_norm=1e9, **settings)
        for at, after in enumerate(found):
            torch.testing.assert_close(after["actor"][:-2], torch.full_like(after["actor"][:-2], weights[at]))
            torch.testing.assert_close(after["actor"][-2:], torch.full_like(after["actor"][-2:], others[at]))
            torch.testing.assert_close(after["critic"], torch.full_like(after["critic"], weights[at]))


@pytest.mark.parametrize("optimizer", STEPS)
def test_two_steps_of_a_policy_from_a_table_by_hand(optimizer):
    settings, weights, others = STEPS[optimizer]
    found = taken("sac", "actor", ["actor", "log_alpha"], optimizer=optimizer, temperature_lr=LR, **settings)
    for at, after in enumerate(found):
        torch.testing.assert_close(after["actor"], torch.full_like(after["actor"], weights[at]))
        torch.testing.assert_close(after["log_alpha"], torch.full_like(after["log_alpha"], others[at]))
    found = taken("dqn", "update", ["actor"], optimizer=optimizer, max_grad_norm=1e9, **settings)
    for at, after in enumerate(found):
        torch.testing.assert_close(after["actor"], torch.full_like(after["actor"], weights[at]))


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_two_steps_of_muon_by_hand(name):
    """The matrix between both hidden layers takes steps of its own, each critic's alone. All others are adamw's."""
    phase, vectors = ("actor_critic", ["actor", "critic"]) if name == "ppo" else ("critic", ["critic"])
    rates = {"max_grad_norm": 1e9} if name == "ppo" else {"critic_lr": LR}
    found = taken(name, phase, vectors, optimizer="muon", **MUON, **rates)
    # The matrix is [4, 4] with elements of a quarter of its singular value; a step is 0.2 sqrt(4) lr long. The second
    # direction is that of -1 + 0.5 (0.5 * 2 - 1).
    step = LR * 0.2 * 2.0 * BROUGHT_UP / 4.0
    matrix = (0.95 - step, 0.95 * (0.95 - step) + step)
    for at, after in enumerate(found):
        critics = after["critic"].view(1 if name == "ppo" else 2, -1)
        # Inputs are 3 numbers of the observation, and 2 of an action beside them.
        first = 4 * (3 if name == "ppo" else 5) + 4
        inside, around = critics[:, first : first + 16], (critics[:, :first], critics[:, first + 16 :])
        torch.testing.assert_close(inside, torch.full_like(inside, matrix[at]), rtol=1e-6, atol=1e-7)
        for part in around:
            torch.testing.assert_close(part, torch.full_like(part, STEPS["adamw"][1][at]))
        if name == "ppo":
            torch.testing.assert_close(after["actor"][-2:], torch.full_like(after["actor"][-2:], STEPS["adamw"][2][at]))


ARRAYS = {"adam": {"adam_m", "adam_v", "adam_step"}, "rmsprop": {"rmsprop_v"}, "sgd": {"sgd_m"}}
ARRAYS["adamw"] = ARRAYS["adam"]
ARRAYS["muon"] = ARRAYS["adam"] | {"muon_m"}


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_the_state_holds_what_the_optimizer_remembers(name):
    for optimizer, moments in ARRAYS.items():
        settings = {"hidden_sizes": (8, 8, 8)} if name == "r2d2" else {}
        spec, _ = built(name, optimizer=optimizer, **settings)
        assert {part.partition(".")[0] for part in spec.optimizer} == moments
    spec, _ = built(name)
    default = "rmsprop" if name in {"a2c", "a3c"} else "adam"
    assert {part.partition(".")[0] for part in spec.optimizer} == ARRAYS[default]


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("ppo", {"momentum": 0.5}, "--momentum has no effect: it is for --optimizer sgd or muon, not adam"),
        ("sac", {"weight_decay": 0.1}, "--weight_decay has no effect: it is for --optimizer adamw or muon, not adam"),
        ("ppo", {"optimizer": "muon", "hidden_sizes": (64,)}, "muon steps the matrices between hidden linear layers"),
        ("r2d2", {"optimizer": "muon"}, "muon steps the matrices between hidden linear layers"),
        (
            "dqn",
            {"optimizer": "sgd", "adam_eps": 1e-3},
            "--adam_eps has no effect: it is for .*adam or adamw",
        ),
        ("a2c", {"adam_eps": 1e-3}, "--adam_eps has no effect"),
        (
            "a2c",
            {"optimizer": "adam", "rmsprop_eps": 0.1},
            "--rmsprop_eps has no effect: it is for .*rmsprop",
        ),
    ],
)
def test_settings_that_nothing_reads_are_refused(name, settings, text):
    with pytest.raises(ConfigError, match=text):
        built(name, **settings)
