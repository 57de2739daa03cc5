"""What a vector step costs beyond the environment's own: loop, policy, statistics, accounting.

    python -m benchmarks.env_step                       # all cases, about a minute
    python -m benchmarks.env_step --write FILE          # and keep the result
    python -m benchmarks.env_step --cases Pendulum-v1:4 # one of them

Three contestants alternate, with the same seeds and actions:

1. An EnvNode collects rollouts over the structures of a real program.
2. Bare environments step. This is the physical limit. `ADDED` is the time of 1 less the time of 2.
3. Bare environments step, with a bare forward pass of the policy (two networks of 64, 64 units) before each vector
   step. `AROUND` is the time of 1 less the time of 3.

Time is the thread's CPU time, so other work of the machine does not count, and nothing here waits. Does not measure the
update, nor the hand-over of whole rollouts between processes.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

import penstock
from benchmarks.measured import Measured, parser, report
from penstock.inference import native
from penstock.kernels.actions import environment_array, to_environment
from penstock.memory.segment import Segment
from penstock.planning import plan, prepare
from penstock.processes.starts import Processes
from penstock.program.plan import Plan
from penstock.program.rollout import rollout_specs
from penstock.registry import load
from penstock.scheduler.loop import Loop, Placed
from penstock.seeding import episode_seed
from penstock.topologies.async_on_policy import build
from penstock.types import Array, Arrays, Spaces
from penstock.wiring.edges import Wiring, node_class
from penstock.wiring.ports import NodePorts

NUM_STEPS = 512
"""T. In short rollouts each contestant would mostly refill the caches that the others have used."""
READER = 99
AROUND = "added around the forward pass"
ADDED = "added, forward pass included"


class Case(NamedTuple):
    """One environment at one width. Its vector step may take ``fixed_us + lane_us * lanes`` longer than the bare."""

    env: str
    lanes: int
    vector: bool = False

    @property
    def name(self) -> str:
        """What results call it."""
        return f"{self.env}:{self.lanes}{':vector' * self.vector}"

    @property
    def budget_us(self) -> float:
        """The bar: how much longer than the bare one a vector step may take."""
        return 12 + 0.05 * self.lanes if self.vector else 5 + 0.5 * self.lanes


CASES = (
    *(Case(env, lanes) for env in ("Pendulum-v1", "CartPole-v1") for lanes in (1, 4, 8, 64)),
    *(Case("CartPole-v1", lanes, vector=True) for lanes in (8, 64, 512)),
)


class Collecting:
    """An EnvNode of a real program. This object is its learner: it publishes once and learns nothing."""

    def __init__(self, plan: Plan) -> None:
        program = build(plan)
        self._wiring = Wiring(program.edges, [(node.name, "one") for node in program.nodes])
        self._segment = Segment.create(self._wiring.nbytes, "penstock")
        self._wiring.attach(self._segment.bytes)
        spec = next(node for node in program.nodes if node.kind == "env")
        self._stream = NodePorts(self._wiring, "learner", "one", READER).stream_reader("rollouts")
        self.published: Arrays = load(plan.learning.initial)(plan.spaces, plan.learning.algorithm_config, plan.run.seed)
        policy = NodePorts(self._wiring, "learner", "one", READER).board_writer("policy")
        policy.publish({spec.name: self.published[spec.name] for spec in plan.learning.spec.published()}, 0)
        ports = NodePorts(self._wiring, spec.name, "one", 1)
        self._node = node_class(spec.kind)(spec.settings)
        self._node.open(ports)
        self._loop = Loop([Placed(self._node, ports)], self, lambda: False)

    def word(self) -> int:
        """There is no bell, because the loop never sleeps here."""
        return 0

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return at once."""

    def rollout(self) -> tuple[float, Arrays]:
        """Seconds that one rollout took, and its slot, which is valid until the next one."""
        begun = time.thread_time()
        while not self._stream.ready():
            self._loop.round()
        seconds = time.thread_time() - begun
        index = self._stream.take()
        if index is None:
            raise RuntimeError("the rollout is gone")
        slot = self._stream.slot(index)
        self._stream.release(index)
        return seconds, slot

    def close(self) -> None:
        """Close the environments."""
        self._node.close()


class Bare:
    """The same bare environments, with the same seeds and actions.

    If ``forward(t, step)`` is given, it is called before each vector step.
    """

    def __init__(self, case: Case, spaces: Spaces, seed: int, forward: Callable[[int, int], None] | None) -> None:
        self._case, self._spaces, self._seed, self._forward = case, spaces, seed, forward
        seeds = [episode_seed(seed, lane, 0) for lane in range(case.lanes)]
        if case.vector:
            self._env = gymnasium.make_vec(case.env, case.lanes, vectorization_mode="vector_entry_point")
            self._env.reset(seed=seeds[0])
        else:
            self._envs = [gymnasium.make(case.env) for _ in range(case.lanes)]
            self._episodes = [0] * case.lanes
            for env, lane_seed in zip(self._envs, seeds, strict=True):
                env.reset(seed=lane_seed)

    def rollout(self, action: Array) -> tuple[float, int]:
        """Seconds for one rollout of ``[T, lanes, ...]`` actions in the policy's units, and how many episodes ended.

        Everything that the environments are given is made beforehand.
        """
        outgoing = [
            to_environment(row, self._spaces.action, environment_array(self._spaces.action, self._case.lanes))
            for row in action
        ]
        return self._step_together(outgoing) if self._case.vector else self._step_each([list(row) for row in outgoing])

    def _step_together(self, actions: Sequence[Array]) -> tuple[float, int]:
        step, forward, ended = self._env.step, self._forward, []
        begun = time.thread_time()
        for t, row in enumerate(actions):
            if forward is not None:
                forward(t, t)
            _, _, terminated, truncated, _ = step(row)
            ended.append(terminated | truncated)
        return time.thread_time() - begun, int(np.sum(ended))

    def _step_each(self, actions: Sequence[Sequence[Any]]) -> tuple[float, int]:
        steps = [(lane, env.step) for lane, env in enumerate(self._envs)]
        before, forward = sum(self._episodes), self._forward
        begun = time.thread_time()
        for t, row in enumerate(actions):
            if forward is not None:
                forward(t, t)
            for (lane, step), action in zip(steps, row, strict=True):
                _, _, terminated, truncated, _ = step(action)
                if terminated or truncated:
                    self._episodes[lane] += 1
                    self._envs[lane].reset(seed=episode_seed(self._seed, lane, self._episodes[lane]))
        return time.thread_time() - begun, sum(self._episodes) - before


def forward_pass(plan: Plan, published: Arrays, lanes: int) -> Callable[[int, int], None]:
    """The policy, bound to a rollout of zeros. Its cost does not depend on the numbers."""
    kernel = native.build(plan.learning.spec.policy)
    kernel.load(published)
    specs = rollout_specs(plan.spaces, plan.learning.spec.row, NUM_STEPS, lanes, same_step=plan.same_step)
    slot = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
    out = {name: slot[name] for name in ("action", "log_prob", "value")}
    return kernel.bind({name: slot[name] for name, _ in plan.spaces.obs}, out, lanes=np.arange(lanes)).act


def measure(case: Case, rounds: int, folder: Path) -> list[Measured]:
    """Alternate the three and compare them; microseconds a vector step, medians over the rounds."""
    flags = {"env": case.env, "num_envs": case.lanes, "num_workers": 1, "vector_env": case.vector, "seed": 1}
    sizes = {"num_steps": NUM_STEPS, "mini_batch_size": 64, "log_dir": str(folder)}
    with Processes() as processes:
        settled = plan(prepare(penstock.from_mapping({**flags, **sizes}), processes), folder, quiet=True)
    node, limit = Collecting(settled), Bare(case, settled.spaces, 1, None)
    acting = Bare(case, settled.spaces, 1, forward_pass(settled, node.published, case.lanes))
    seconds = []
    for _ in range(rounds + 1):
        whole, slot = node.rollout()
        action = slot["action"][:NUM_STEPS]
        (bare, ended), (with_forward, _) = limit.rollout(action), acting.rollout(action)
        # The vector environment seeds its own episodes, so there the contestants do not run the same ones.
        if not case.vector and ended != slot["episode_count"]:
            raise RuntimeError(f"{case.name}: the bare environments went another way")
        seconds.append((whole, bare, with_forward))
    node.close()
    # The first round warms up. Differences are taken within a round, because the machine's speed drifts between rounds.
    whole_us, bare_us, forward_us = np.array(seconds[1:]).T * 1e6 / NUM_STEPS
    around, added, environment = (
        round(float(np.median(us)), 2) for us in (whole_us - forward_us, whole_us - bare_us, bare_us)
    )
    return [
        Measured(case.name, AROUND, "penstock", around, may_be_us=round(case.budget_us, 2)),
        Measured(case.name, ADDED, "penstock", added),
        Measured(case.name, "the environment itself", "limit", environment),
    ]


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("env_step", __doc__, rounds=30)
    names = [case.name for case in CASES]
    arguments.add_argument("--cases", nargs="+", choices=names, help="names of cases, as printed", default=names)
    args = arguments.parse_args()
    rows = []
    for case in CASES:
        if case.name in args.cases:
            with tempfile.TemporaryDirectory() as folder:
                rows += measure(case, args.rounds, Path(folder))
    report(arguments, args, rows, {"num_steps": NUM_STEPS})


if __name__ == "__main__":
    main()
