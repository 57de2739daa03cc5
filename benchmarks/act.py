"""One question to a policy: noise, both networks of 64, 64, action, log-probability and value, from Python.

    python -m benchmarks.act                # about 20 seconds
    python -m benchmarks.act --write FILE

Pendulum's spaces, 1 to 64 rows. Ours is measured twice: bound to a rollout, as environment processes call it, and with
arrays and noise as arguments. ONNX Runtime, torch and NumPy compute the same from the same parameters on one thread;
this is checked before they are timed. The limit: the products' operations at the rate of a large product on one core.

The last case has memory: CartPole's spaces, one LSTM of 64 that actor and critic share, 8 rows. There an acting
session of a loaded policy is measured as well, as `policy.session(8)` gives it, with all its checks.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.arguments import positive_int
from benchmarks.measured import Kind, Measured, parser, report
from benchmarks.product import forward_operations, operations_per_second
from benchmarks.timing import Contestant, compare, per_call
from penstock.algorithms.ppo import learn
from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.envs.sources import probe
from penstock.inference import native, onnx
from penstock.inference import torch as eager
from penstock.kernels.noise import generate
from penstock.policies import LSTM, Activation, Categorical, Encoding, Linear, Network, PolicyGraph
from penstock.policies.acting_session import no_carry
from penstock.serving.run_policy import RunPolicy
from penstock.types import Array, Arrays, PolicyBackend

ROWS = (1, 4, 8, 64)
SPACES = probe("Pendulum-v1").spaces
CONFIG = PPOConfig()
SPEC = spec(SPACES, CONFIG)
PUBLISHED = init_state(SPACES, CONFIG, 0)
SEED = 1
AGREE = 1e-5
CELLS = 64
MEMORY = PolicyGraph(
    (Encoding("obs", "flat", 4),),
    Network("actor", (LSTM(4, CELLS), Linear(CELLS, 2 + 1, 1.0))),
    None,
    Categorical(2),
)
MEMORY_SPACES = probe("CartPole-v1").spaces
MEMORY_ROWS = 8
MEMORY_OPERATIONS = 2 * MEMORY_ROWS * ((4 + CELLS) * 4 * CELLS + CELLS * (2 + 1))
"""Additions and multiplications of its products."""


class Asked(NamedTuple):
    """A policy with its parameters."""

    policy: PolicyGraph
    published: Arrays


PLAIN = Asked(SPEC.policy, PUBLISHED)
REMEMBERING = Asked(MEMORY, {"actor": MEMORY.actor.initial(np.random.default_rng(0))})


class Question(NamedTuple):
    """Arrays of one call."""

    given: Arrays
    """The observation; with memory also ``first``."""
    carry: Arrays
    lanes: Array
    explore: Array
    out: Arrays


def question(rows: int) -> Question:
    """Observations, and space for the answer."""
    obs = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
    out = {"action": np.zeros((rows, 1), np.float32)} | {n: np.zeros(rows, np.float32) for n in ("log_prob", "value")}
    return Question({"obs": obs}, {}, np.arange(rows), np.ones(rows, np.float32), out)


def memory_question() -> Question:
    """The same for the policy with memory; one lane begins with every call."""
    n = MEMORY_ROWS
    obs = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
    out = {"action": np.zeros(n, np.int64)} | {name: np.zeros(n, np.float32) for name in ("log_prob", "value")}
    given = {"obs": obs, "first": np.arange(n) == 0}
    return Question(given, no_carry(MEMORY, n), np.arange(n), np.ones(n, np.float32), out)


def asking(backend: PolicyBackend, asked: Question, of: Asked = PLAIN) -> Callable[[], None]:
    """Generate noise and ask a backend."""
    backend.load(of.published)
    given, out = {**asked.given, **asked.carry}, {**asked.out, **asked.carry}

    def act() -> None:
        noise = generate(of.policy.noise, SEED, asked.lanes, 0)
        backend.act({**given, "noise": noise, "explore": asked.explore}, out)

    return act


def bound(asked: Question, of: Asked = PLAIN) -> Callable[[], None]:
    """The native kernel, bound to a rollout of one row; it generates the noise itself."""
    kernel = native.build(of.policy)
    kernel.load(of.published)
    whole = {name: values[None] for name, values in asked.given.items()}
    out = {name: values[None] for name, values in asked.out.items()}
    rollout = kernel.bind(whole, out, seed=SEED, lanes=asked.lanes, explore=asked.explore, carry=asked.carry)
    return lambda: rollout.act(0, 0)


class NumPyPolicy:
    """The same policy in plain NumPy."""

    def load(self, published: Mapping[str, Array]) -> None:
        """Take new parameters."""
        actor, critic = SPEC.policy.networks
        self._actor, self._critic = (_matrices(network, published[network.name]) for network in (actor, critic))
        self._log_std = published[actor.name][-SPEC.policy.noise.shape[0] :]

    def act(self, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Write the answer."""
        mean = _forward(self._actor, inputs["obs"])
        deviation = np.exp(self._log_std)
        action = mean + inputs["explore"][:, None] * deviation * inputs["noise"]
        scaled = (action - mean) / deviation
        out["action"][...] = action
        out["log_prob"][...] = (-0.5 * scaled * scaled - self._log_std - 0.5 * np.log(2 * np.pi)).sum(1)
        out["value"][...] = _forward(self._critic, inputs["obs"])[:, 0]


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


class Act(NamedTuple):
    """One of the things that are compared."""

    what: str
    kind: Kind
    call: Callable[[], None]
    asked: Question


def measure(rows: int, rounds: int, calls: int, core: float) -> list[Measured]:
    """Every contestant at this many rows; ``core`` is the number of operations per second of one core."""
    asked = question(rows)
    acts: list[Act] = [
        Act("native kernel, bound", "penstock", bound(asked), asked),
        Act("native kernel, given arrays", "penstock", asking(native.build(SPEC.policy), asked), asked),
        Act("NumPy", "peer", asking(NumPyPolicy(), asked), asked),
        Act("ONNX Runtime", "peer", asking(onnx.build(SPEC.policy), asked), asked),
        Act("torch", "peer", asking(eager.build(f"{learn.__name__}:build", SPACES, CONFIG), asked), asked),
    ]
    check(acts)
    case = f"{rows} row{'s' * (rows > 1)}"
    found = compare(case, [Contestant(act.what, act.kind, per_call(act.call, calls)) for act in acts], rounds)
    return [*found, limit(case, rows * forward_operations(SPEC.policy), core)]


def measure_memory(rounds: int, calls: int, core: float) -> list[Measured]:
    """The policy with memory. Each contestant hands on a carry of its own."""
    first, second, third, fourth = (memory_question() for _ in range(4))
    acts = [
        Act("native kernel, bound", "penstock", bound(first, REMEMBERING), first),
        Act("native kernel, given arrays", "penstock", asking(native.build(MEMORY), second, REMEMBERING), second),
        Act("ONNX Runtime", "peer", asking(onnx.build(MEMORY), third, REMEMBERING), third),
    ]
    check(acts)
    acts.append(Act("session of a loaded policy", "penstock", in_session(fourth), fourth))
    case = f"{MEMORY_ROWS} rows, LSTM of {CELLS}"
    found = compare(case, [Contestant(act.what, act.kind, per_call(act.call, calls)) for act in acts], rounds)
    return [*found, limit(case, MEMORY_OPERATIONS, core)]


def in_session(asked: Question) -> Callable[[], None]:
    """An acting session of a loaded policy. It answers greedily, with actions only."""
    session = RunPolicy(MEMORY_SPACES, MEMORY, native.build(MEMORY), REMEMBERING.published, "").session(MEMORY_ROWS)

    def act() -> None:
        asked.out["action"][...] = session.act(asked.given["obs"], first=asked.given["first"])

    return act


def check(acts: list[Act]) -> None:
    """Raise if the first answers differ."""
    answers = [answer(act) for act in acts]
    for act, given in zip(acts, answers, strict=True):
        for name, values in answers[0].items():
            np.testing.assert_allclose(given[name], values, rtol=AGREE, atol=AGREE, err_msg=f"{act.what}: {name}")


def limit(case: str, operations: int, core: float) -> Measured:
    """Least time for so many operations; ``core`` is the number of operations per second of one core."""
    return Measured(case, "its operations, one core", "limit", round(operations / core * 1e6, 3))


def answer(act: Act) -> Arrays:
    """The answer of one call."""
    act.call()
    return {name: values.copy() for name, values in act.asked.out.items()}


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("act", __doc__, rounds=9)
    arguments.add_argument("--calls", type=positive_int, default=1000, help="calls of a round")
    args = arguments.parse_args()
    torch.set_num_threads(1)
    core = operations_per_second(1)
    rows = [row for number in ROWS for row in measure(number, args.rounds, args.calls, core)]
    rows += measure_memory(args.rounds, args.calls, core)
    report(arguments, args, rows, {"gflops_of_one_core": round(core / 1e9, 1)})


if __name__ == "__main__":
    main()
