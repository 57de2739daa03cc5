"""One minibatch update at the published setting, gather, normalisation, clip, Adam and metrics included.

    python -m benchmarks.update                # about a minute, and the first time another to compile
    python -m benchmarks.update --write FILE

PPO on Pendulum: 8 lanes of 2,048 steps, minibatches of 64 rows of a new permutation, two networks of 64, 64.

- Ours: the native kernel at each instruction-set level of this processor, on one thread and on two; and the compiled
  update.
- The peer: the same mathematics as plain torch calls.
- The limit: the products' operations at the rate of a large product, on one core and on two.

A round is 256 minibatches in one call, always from the same state.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.measured import Measured, parser, report
from benchmarks.product import operations_per_second, update_operations
from benchmarks.timing import Contestant, compare
from penstock.algorithm import AlgorithmSpec
from penstock.algorithms.ppo import fused, learn
from penstock.algorithms.ppo.rollouts import targets
from penstock.algorithms.ppo.spec import PPOConfig, init_state, spec
from penstock.envs.sources import probe
from penstock.inference import native
from penstock.kernels.level import levels
from penstock.kernels.noise import generate
from penstock.kernels.update import ActorCriticUpdate
from penstock.nodes.learner.batch import minibatches
from penstock.policies.native import layout_of
from penstock.program.rollout import rollout_specs
from penstock.registry import load
from penstock.types import Array, Arrays, Spaces
from penstock.updates.contract import Updater
from penstock.updates.rows import Rows
from penstock.updates.settings import UpdaterSettings

LANES = 8
SPACES = probe("Pendulum-v1").spaces
CONFIG = PPOConfig()
SPEC = spec(SPACES, CONFIG)
MAY_BE_US = {("avx512", 1): 55.0, ("avx512", 2): 30.0, ("avx2", 1): 100.0}
"""The bars in microseconds, by instruction-set level and threads."""
CASE = f"one minibatch of {CONFIG.mini_batch_size} rows"


def rollout(spaces: Spaces, algorithm: AlgorithmSpec, state: Mapping[str, Array], num_steps: int) -> Arrays:
    """A stream of one slot, field -> ``[1, T + 1, lanes, ...]``. A policy acts on random observations.

    Args:
        spaces: of a lane.
        algorithm: says which policy it is, and what a row holds.
        state: of the policy.
        num_steps: steps of each lane.
    """
    specs = rollout_specs(spaces, algorithm.row, num_steps, LANES, same_step=True)
    arrays = {part.name: np.zeros((1, *part.shape), part.dtype) for part in specs}
    generator, lanes = np.random.default_rng(0), np.arange(LANES)
    arrays["obs"][...] = generator.standard_normal(arrays["obs"].shape)
    arrays["reward"][...] = generator.standard_normal(arrays["reward"].shape)
    arrays["valid"][0, :-1] = True
    policy = native.build(algorithm.policy)
    policy.load(state)
    for t in range(num_steps + 1):
        out = {name: arrays[name][0, t] for name in ("action", "log_prob", "value")}
        noise = generate(algorithm.policy.noise, 0, lanes, t)
        policy.act({"obs": arrays["obs"][0, t], "noise": noise, "explore": np.ones(LANES, np.float32)}, out)
    return arrays


def kernel_name(level: str, threads: int) -> str:
    """The name of a row of the native kernel."""
    return f"fused, {level}, {threads} thread{'s' * (threads > 1)}"


class Kernel:
    """The native update at one instruction-set level."""

    def __init__(self, arrays: Arrays, level: str, threads: int) -> None:
        self._threads = threads
        self._state = init_state(SPACES, CONFIG, 0)
        rows = Rows(arrays, SPEC.minibatch, SPEC.targets)
        rows.prepare(0, lambda slot: targets(CONFIG, self._state, slot))
        self._update = ActorCriticUpdate(layout_of(SPEC.policy), fused.objective(CONFIG), rows.count, level)
        self._update.pack(self._state, rows.flat, 0, rows.learned_per_slot)

    def load(self, state: Mapping[str, Array]) -> None:
        """Begin again."""
        for name, values in state.items():
            self._state[name][...] = values

    def minibatches(self, indices: Array, weights: Array) -> None:
        """Run one update for each row of ``indices``."""
        self._update.run(self._state, indices, weights, CONFIG.lr, self._threads)

    def metrics(self) -> dict[str, float]:
        """Means since the last call."""
        return self._update.metrics()


def torch_update(backend: str, arrays: Arrays) -> Updater:
    """An update by torch, on one thread, which is its fastest at this size."""
    build = load(f"penstock.updates.{backend}:build")
    updater: Updater = build(
        UpdaterSettings(f"{learn.__name__}:build", CONFIG, SPEC, SPACES, device="cpu", threads=1, seed=0), arrays
    )
    updater.load(init_state(SPACES, CONFIG, 0))
    updater.begin([0], 0.0)
    return updater


def learning(update: Kernel | Updater, indices: Array, weights: Array) -> Callable[[], Array]:
    """A contestant that measures the mean seconds of a minibatch, from the first state each time."""
    start = init_state(SPACES, CONFIG, 0)

    def run() -> Array:
        update.load(start)
        begun = time.perf_counter()
        update.minibatches(indices, weights)
        seconds = time.perf_counter() - begun
        if not np.isfinite(list(update.metrics().values())).all():
            raise RuntimeError("the update has diverged")
        return np.asarray(seconds / len(indices))

    return run


def contestants(arrays: Arrays, backends: list[str], count: int) -> list[Contestant]:
    """The contestants: ours first, the quickest level before the others."""
    rows = np.arange(CONFIG.num_steps * LANES)
    epoch = minibatches(rows, CONFIG.mini_batch_size, (0, 0, 0))
    indices, weights = epoch.indices[:count], epoch.weights[:count]
    found = []
    if "fused" in backends:
        for level in reversed(levels()):
            for threads in (1, 2):
                run = learning(Kernel(arrays, level, threads), indices, weights)
                found.append(Contestant(kernel_name(level, threads), "penstock", run))
    if "compiled" in backends:
        found.append(Contestant("compiled", "penstock", learning(torch_update("compiled", arrays), indices, weights)))
    if "eager" in backends:
        found.append(Contestant("torch, eager", "peer", learning(torch_update("eager", arrays), indices, weights)))
    return found


def measure(backends: list[str], rounds: int, count: int) -> list[Measured]:
    """A row for each contestant, and the limits."""
    arrays = rollout(SPACES, SPEC, init_state(SPACES, CONFIG, 0), CONFIG.num_steps)
    rows = compare(CASE, contestants(arrays, backends, count), rounds)
    bars = {kernel_name(level, threads): bar for (level, threads), bar in MAY_BE_US.items()}
    rows = [row._replace(may_be_us=bars.get(row.what)) for row in rows]
    operations = CONFIG.mini_batch_size * update_operations(SPEC.policy)
    for threads, name in ((1, "one core"), (2, "two cores")):
        limit = round(operations / operations_per_second(threads) * 1e6, 3)
        rows.append(Measured(CASE, f"its operations, {name}", "limit", limit))
    return rows


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("update", __doc__, rounds=9)
    every = ["fused", "compiled", "eager"]
    arguments.add_argument("--backends", nargs="+", choices=every, default=every, help="updates to compare")
    arguments.add_argument("--minibatches", type=positive_int, default=256, help="of a round, at most an epoch's")
    args = arguments.parse_args()
    rows = measure(args.backends, args.rounds, args.minibatches)
    report(arguments, args, rows, {"lanes": LANES, "num_steps": CONFIG.num_steps})


if __name__ == "__main__":
    main()
