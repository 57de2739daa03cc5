"""One question to a policy: noise, both networks of 64, 64, action, log-probability and value, from Python.

    python -m benchmarks.act                # about 20 seconds
    python -m benchmarks.act --write FILE

Pendulum's spaces, 1 to 64 rows. Ours twice: bound to a rollout, as environment processes call it, and given arrays and
noise. ONNX Runtime, torch and NumPy compute the same from the same parameters on one thread; that they agree is checked
before they are timed. The limit: the products' operations at the rate of a large product on one core.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.arguments import positive_int
from benchmarks.measured import Kind, Measured, parser, report
from benchmarks.peak import forward_operations, operations_per_second
from benchmarks.timing import Contestant, compare, per_call
from penstock.algorithms.ppo import learn
from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.envs.sources import probe
from penstock.inference import native, onnx
from penstock.inference import torch as eager
from penstock.kernels.noise import generate
from penstock.policies import Activation, Linear, Network
from penstock.types import Array, Arrays, PolicyBackend

ROWS = (1, 4, 8, 64)
SPACES = probe("Pendulum-v1").spaces
CONFIG = PPOConfig()
SPEC = spec(SPACES, CONFIG)
PUBLISHED = init_state(SPACES, CONFIG, 0)
SEED = 1
AGREE = 1e-5


class Question(NamedTuple):
    """Arrays of one call."""

    obs: Arrays
    lanes: Array
    explore: Array
    out: Arrays


def question(rows: int) -> Question:
    """Observations, and room for the answer."""
    obs = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
    out = {"action": np.zeros((rows, 1), np.float32)} | {n: np.zeros(rows, np.float32) for n in ("log_prob", "value")}
    return Question({"obs": obs}, np.arange(rows), np.ones(rows, np.float32), out)


def asking(backend: PolicyBackend, asked: Question) -> Callable[[], None]:
    """Draw noise and ask a backend."""
    backend.load(PUBLISHED)

    def act() -> None:
        backend.act(asked.obs, generate(SPEC.noise, SEED, asked.lanes, 0), asked.explore, asked.out)

    return act


def bound(asked: Question) -> Callable[[], None]:
    """The native kernel, bound to a rollout of one row; it generates the noise itself."""
    kernel = native.build(SPEC.policy)
    kernel.load(PUBLISHED)
    whole = {name: values[None] for name, values in asked.obs.items()}
    out = {name: values[None] for name, values in asked.out.items()}
    rollout = kernel.bind(whole, out, seed=SEED, lanes=asked.lanes, explore=asked.explore)
    return lambda: rollout.act(0, 0)


class NumPyPolicy:
    """The same policy in NumPy, as somebody would write it down."""

    def load(self, published: Mapping[str, Array]) -> None:
        """Take new parameters."""
        actor, critic = SPEC.policy.networks
        self._actor, self._critic = (_matrices(network, published[network.name]) for network in (actor, critic))
        self._log_std = published[actor.name][-SPEC.noise.shape[0] :]

    def act(self, obs: Mapping[str, Array], noise: Array, explore: Array, out: Mapping[str, Array]) -> None:
        """Write the answer."""
        mean = _forward(self._actor, obs["obs"])
        deviation = np.exp(self._log_std)
        action = mean + explore[:, None] * deviation * noise
        scaled = (action - mean) / deviation
        out["action"][...] = action
        out["log_prob"][...] = (-0.5 * scaled * scaled - self._log_std - 0.5 * np.log(2 * np.pi)).sum(1)
        out["value"][...] = _forward(self._critic, obs["obs"])[:, 0]


def _matrices(network: Network, flat: Array) -> list[tuple[Array, Array, bool]]:
    """Weights, bias, and whether tanh follows, of each linear layer."""
    arrays = [
        flat[part.offset : part.offset + int(np.prod(part.shape))].reshape(part.shape) for part in network.slices()
    ]
    layers = iter(arrays)
    following = [*network.layers[1:], None]
    return [
        (next(layers), next(layers), isinstance(after, Activation))
        for layer, after in zip(network.layers, following, strict=True)
        if isinstance(layer, Linear)
    ]


def _forward(layers: list[tuple[Array, Array, bool]], x: Array) -> Array:
    for weight, bias, curved in layers:
        x = x @ weight + bias
        if curved:
            x = np.tanh(x)
    return x


def measure(rows: int, rounds: int, calls: int, core: float) -> list[Measured]:
    """Every contestant at this many rows; ``core`` is what one core computes a second."""
    asked = question(rows)
    acts: list[tuple[str, Kind, Callable[[], None]]] = [
        ("native kernel, bound", "penstock", bound(asked)),
        ("native kernel, given arrays", "penstock", asking(native.build(SPEC.policy), asked)),
        ("NumPy", "peer", asking(NumPyPolicy(), asked)),
        ("ONNX Runtime", "peer", asking(onnx.build(SPEC.policy), asked)),
        ("torch", "peer", asking(eager.build(f"{learn.__name__}:build", SPACES, CONFIG), asked)),
    ]
    answers = [answer(act, asked) for *_, act in acts]
    for (what, *_), given in zip(acts, answers, strict=True):
        for name, values in answers[0].items():
            np.testing.assert_allclose(given[name], values, rtol=AGREE, atol=AGREE, err_msg=f"{what}: {name}")
    case = f"{rows} row{'s' * (rows > 1)}"
    found = compare(case, [Contestant(what, kind, per_call(act, calls)) for what, kind, act in acts], rounds)
    limit = rows * forward_operations(SPEC.policy) / core * 1e6
    return [*found, Measured(case, "its operations, one core", "limit", round(limit, 3))]


def answer(act: Callable[[], None], asked: Question) -> Arrays:
    """What one call answers."""
    act()
    return {name: values.copy() for name, values in asked.out.items()}


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("act", __doc__, rounds=9)
    arguments.add_argument("--calls", type=positive_int, default=1000, help="calls of a round")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    core = operations_per_second(1)
    rows = [row for number in ROWS for row in measure(number, args.rounds, args.calls, core)]
    report(arguments, args, rows, {"gflops_of_one_core": round(core / 1e9, 1)})


if __name__ == "__main__":
    main()
