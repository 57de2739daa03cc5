"""Gradient steps of SAC, TD3 and DQN from a table: sampling, all phases, Adam, targets and priorities included.

    python -m benchmarks.replay_update                 # two minutes on 2 cores, and the first time two to compile
    python -m benchmarks.replay_update --backends fused
    python -m benchmarks.replay_update --optimizer muon --backends fused compiled eager
    python -m benchmarks.replay_update --write FILE

Rows are like those of Pendulum-v1 (SAC, TD3) and CartPole-v1 (DQN, double, prioritised). The table holds 100,000.

- Ours: the native update, on one thread and on two; the compiled update, on one thread.
- Peers, on one thread: the same mathematics as plain torch calls, and stable-baselines3's own update with the same
  networks and minibatches. Its DQN is neither double nor prioritised.
- The limit: the operations of the products at the processor's peak (`benchmarks.peak`), on one core and on two.

A time is that of one gradient step. A round of the native update is one call. SAC with two layers of 256 has a bar: its
products must run at 75 % of the peak of two cores, although the step is more than its products. Bars are for Adam. The
layers of 400 and 300 are TD3's default.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, get_args

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.measured import Measured, parser, report
from benchmarks.peak import operations_per_second
from benchmarks.peers.rounds import peer
from benchmarks.timing import Contestant, compare
from penstock.algorithm_lookup import find_algorithm
from penstock.algorithms.off_policy.critics import critic_network
from penstock.kernels.optimizer import OptimizerName
from penstock.kernels.steps import StepKeys
from penstock.memory.segment import Segment
from penstock.memory.table import Table
from penstock.policies import Linear, Network
from penstock.program.rollout import table_specs
from penstock.registry import UPDATES, load
from penstock.replay.sampler import Sampler
from penstock.replay.sum_tree import SumTree
from penstock.types import Array, Arrays, Box, Discrete, Spaces
from penstock.updates.fused.replay import FusedLearner
from penstock.updates.settings import UpdaterSettings

STEPS, LANES, SLOTS = 64, 8, 200
PENDULUM = Spaces((("obs", Box((3,), "float32", (-8.0,) * 3, (8.0,) * 3)),), Box((1,), "float32", (-2.0,), (2.0,)))
CARTPOLE = Spaces((("obs", Box((4,), "float32", (-5.0,) * 4, (5.0,) * 4)),), Discrete(2))
PEER = "stable-baselines3"
BACKENDS = ("fused", "compiled", "eager", PEER)


class Case(NamedTuple):
    """One algorithm at one size."""

    name: str
    algo: str
    spaces: Spaces
    settings: dict[str, Any]
    may_be_us: dict[int, float]
    """The bars in microseconds, by threads."""
    of_peak: dict[int, float]
    """The bars as shares of the peak at which the products must run, by threads."""


CASES = (
    Case(
        "SAC, two layers of 64, 100 rows",
        "sac",
        PENDULUM,
        {"hidden_sizes": (64, 64), "mini_batch_size": 100},
        {1: 1e6 / 3000, 2: 1e6 / 4500},
        {},
    ),
    Case("SAC, two layers of 256, 256 rows", "sac", PENDULUM, {}, {}, {2: 0.75}),
    Case("TD3, two layers of 256, 256 rows", "td3", PENDULUM, {"hidden_sizes": (256, 256)}, {}, {}),
    Case("TD3, layers of 400 and 300, 256 rows", "td3", PENDULUM, {}, {}, {}),
    Case(
        "DQN, two layers of 64, 64 rows",
        "dqn",
        CARTPOLE,
        {"hidden_sizes": (64, 64), "mini_batch_size": 64, "prioritised": True},
        {1: 1e6 / 15000},
        {},
    ),
)


def operations(case: Case) -> int:
    """Additions and multiplications of the products of one gradient step.

    - Each network's weights get gradients, and so do the inputs of its layers behind the first.
    - SAC and TD3: the critics' phase runs the actor forward once and all critics twice. The actor's phase runs the
      actor, and forward and back through all layers of the critics that judge it: all of SAC's, the first of TD3's.
    - DQN: the network runs forward on two observations and its target on one.
    """
    config = find_algorithm(case.algo).config(**case.settings)
    graph = load(find_algorithm(case.algo).spec)(case.spaces, config).policy
    actor, actor_first = _operations(graph.actor)
    if case.algo == "dqn":
        return int(config.mini_batch_size * (5 * actor - actor_first))
    critic, critic_first = _operations(critic_network(graph, config))
    judges = config.critics if case.algo == "sac" else 1
    of_critics = actor + config.critics * (4 * critic - critic_first)
    of_actor = 3 * actor - actor_first + judges * 2 * critic
    return int(config.mini_batch_size * (of_critics + of_actor / config.policy_delay))


def _operations(network: Network) -> tuple[int, int]:
    """Of all layers and of the first one, for one row."""
    found = [2 * layer.inputs * layer.outputs for layer in network.layers if isinstance(layer, Linear)]
    return sum(found), found[0]


def filled(spaces: Spaces) -> Table:
    """A table of random rows whose episodes go on."""
    specs = table_specs(spaces, (), STEPS, LANES, same_step=True)
    table = Table(Segment.create(Table.required(specs, 1, SLOTS), "replay").bytes, specs, 1, SLOTS)
    generator = np.random.default_rng(0)
    for sequence in range(SLOTS):
        slot = table.slot(table.claim(0, sequence))
        slot["obs"][...] = generator.standard_normal(slot["obs"].shape)
        slot["reward"][...] = generator.standard_normal(slot["reward"].shape)
        slot["action"][...] = generator.integers(0, 2, slot["action"].shape)
        slot["valid"][:-1] = True
        slot["continues"][...] = sequence > 0
        table.push(0, sequence)
    return table


def tree_of(table: Table) -> SumTree:
    """A tree in which all rows have the same priority."""
    rows = table.arrays["valid"].size
    tree = SumTree(Segment.create(SumTree.required(rows), "tree").bytes, rows)
    priorities = np.ones(rows // SLOTS)
    for sequence in range(SLOTS):
        tree.set(table.index(0, sequence) * len(priorities), sequence, priorities)
    return tree


class Learning:
    """A learner's updater, its sampler, and a counter of steps."""

    def __init__(self, case: Case, table: Table, backend: str, threads: int) -> None:
        package = find_algorithm(case.algo)
        config = package.config(**case.settings)
        spec = load(package.spec)(case.spaces, config)
        learn = package.fused if UPDATES[backend].native else package.learn
        settings = UpdaterSettings(learn or "", config, spec, case.spaces, "cpu", threads, seed=0)
        self._updater = load(UPDATES[backend].replay or "")(settings, None)
        self._updater.load(load(package.initial)(case.spaces, config, 0))
        self._tree = tree_of(table) if spec.table.priorities is not None else None
        self._sampler = Sampler(table, LANES, ["obs"], n_step=1, gamma=0.99, stack={}, tree=self._tree)
        self._places = {name: np.zeros(config.mini_batch_size, np.int64) for name in ("index", "stamp")}
        self._minibatch: Arrays = self._updater.buffers()
        self._before = (table.written(0),)
        self._number = 0

    def native(self, steps: int, threads: int) -> Callable[[], Array]:
        """A round: so many steps in one call."""
        updater: FusedLearner = self._updater
        minibatches = updater.sample_from(self._sampler, self._places, self._tree, 0.6)

        def run() -> Array:
            minibatches.begin(self._before)
            begun = time.perf_counter()
            updater.take_steps(StepKeys(0, self._number, 0.4), steps, 0.0, threads)
            seconds = time.perf_counter() - begun
            self._number += steps
            self._check()
            return np.asarray(seconds / steps)

        return run

    def one_by_one(self, steps: int) -> Callable[[], Array]:
        """A round: so many steps, each sampled by a call of its own."""

        def run() -> Array:
            begun = time.perf_counter()
            for number in range(self._number, self._number + steps):
                self._sampler.sample((0, number), self._minibatch | self._places, self._before, 0.4)
                found = self._updater.learn(self._minibatch, 0.0)
                if self._tree is not None:
                    self._tree.update(self._places["index"], self._places["stamp"], found["priority"] ** 0.6)
            seconds = time.perf_counter() - begun
            self._number += steps
            self._check()
            return np.asarray(seconds / steps)

        return run

    def _check(self) -> None:
        if not np.isfinite(list(self._updater.metrics().values())).all():
            raise RuntimeError("the update has diverged")


@contextmanager
def contestants(case: Case, backends: list[str], steps: int) -> Iterator[list[Contestant]]:
    """The contestants of one case, the native update first, while the peer waits in its process."""
    table = filled(case.spaces)
    found = []
    if "fused" in backends:
        for threads in (1, 2):
            run = Learning(case, table, "fused", threads).native(steps, threads)
            found.append(Contestant(_fused(threads), "penstock", run))
    if "compiled" in backends:
        few = max(1, steps // 4)
        found.append(Contestant("compiled", "penstock", Learning(case, table, "compiled", 1).one_by_one(few)))
    few = max(1, steps // 10)
    if "eager" in backends:
        found.append(Contestant("torch, eager", "peer", Learning(case, table, "eager", 1).one_by_one(few)))
    if PEER not in backends:
        yield found
        return
    config = find_algorithm(case.algo).config(**case.settings)
    words = ["--algo", case.algo, "--batch", str(config.mini_batch_size), "--hidden", *map(str, config.hidden_sizes)]
    with peer("sb3", "update", words) as other:
        each = other.each_call("update", few)
        yield [*found, Contestant(PEER, "peer", lambda: np.asarray(each().mean()))]


def _fused(threads: int) -> str:
    return f"fused, {threads} thread{'s' * (threads > 1)}"


def with_optimizer(case: Case, name: str) -> Case:
    """The case with another optimizer, and then without bars."""
    if name == "adam":
        return case
    return Case(f"{case.name}, {name}", case.algo, case.spaces, {**case.settings, "optimizer": name}, {}, {})


def measure(
    cases: Sequence[Case], backends: list[str], peaks: Mapping[int, float], rounds: int, steps: int
) -> list[Measured]:
    """Rows of each case: ours, the peers', the limits.

    Args:
        cases: what is learned.
        backends: what is compared, of `BACKENDS`.
        peaks: operations per second, by threads.
        rounds: how often all take turns.
        steps: gradient steps of a round of the native update.
    """
    found: list[Measured] = []
    for case in cases:
        limits = {threads: operations(case) / peak * 1e6 for threads, peak in peaks.items()}
        of_peak = {threads: round(limits[threads] / share, 3) for threads, share in case.of_peak.items()}
        bars = {_fused(threads): bar for threads, bar in (case.may_be_us | of_peak).items()}
        with contestants(case, backends, steps) as those:
            rows = compare(case.name, those, rounds)
        found += [row._replace(may_be_us=bars.get(row.what)) for row in rows]
        for threads, name in ((1, "one core"), (2, "two cores")):
            found.append(Measured(case.name, f"its operations, {name}", "limit", round(limits[threads], 3)))
    return found


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("replay_update", __doc__, rounds=7)
    arguments.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS), help="what is compared")
    arguments.add_argument(
        "--optimizer", choices=get_args(OptimizerName), default="adam", help=f"of ours; {PEER} has Adam"
    )
    arguments.add_argument("--steps", type=positive_int, default=200, help="gradient steps of a round")
    args = arguments.parse_args()
    peaks = {threads: operations_per_second(threads) for threads in (1, 2)}
    cases = [with_optimizer(case, args.optimizer) for case in CASES]
    rows = measure(cases, args.backends, peaks, args.rounds, args.steps)
    gflops = {str(threads): round(peak / 1e9, 1) for threads, peak in peaks.items()}
    report(arguments, args, rows, {"lanes": LANES, "rows": SLOTS * STEPS * LANES, "peak_gflops": gflops})


if __name__ == "__main__":
    main()
