"""What V-trace is worth: IMPALA with rollouts that are some updates old on purpose, with its correction and without.

    python -m benchmarks.vtrace                                     # lags of 0, 10 and 50 updates, one seed
    python -m benchmarks.vtrace --seeds 0 1 2 --write FILE
    python -m benchmarks.vtrace --seeds 0 1 2 --lr 3e-3 --mini_batch_size 160

A run is one loop in this process: a rollout of 8 lanes of CartPole-v1 by the parameters of so many updates ago, then
one update from it. Without the correction, the learner is told that its own policy acted. Settings that are not
given are IMPALA's, but for a larger learning rate and epsilon: with these a policy of older parameters does harm.
Weights are cut off at 1, as in the paper, unless ``--bound`` says otherwise. The return is that of the last 100
training episodes; a curve has it at ten points of the run.

The paper compares them in its table 2, https://arxiv.org/abs/1802.01561.
"""

import argparse
import statistics
import sys
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from benchmarks.arguments import positive_int
from benchmarks.record import command_of, destination, write
from penstock.algorithms.impala.fused import build
from penstock.algorithms.impala.spec import IMPALAConfig, init_state, spec
from penstock.algorithms.ppo.spec import policy_graph
from penstock.kernels.policy import PolicyKernel
from penstock.policies.native import layout_of
from penstock.program.rollout import rollout_specs
from penstock.types import Box, Discrete, Spaces
from penstock.updates.fused import FusedUpdater

LANES = 8
POINTS = 10
LEAST = 10_000
"""Timesteps of a run whose first tenth has episodes that have ended."""
SPACES = Spaces((("obs", Box((4,), "float32", (-1.0,) * 4, (1.0,) * 4)),), Discrete(2))
Arrays = dict[str, np.ndarray]


class Lagging:
    """CartPole-v1 in some lanes, played by the parameters of ``lag`` updates ago.

    Args:
        lag: in updates.
        config: of IMPALA.
        seed: of episodes and noise.
    """

    def __init__(self, lag: int, config: IMPALAConfig, seed: int) -> None:
        makers = [lambda: gymnasium.make("CartPole-v1")] * LANES
        self._envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        self._generator = np.random.default_rng(seed)
        self._policy = PolicyKernel(layout_of(policy_graph(SPACES, config)))
        self._versions: deque[Arrays] = deque(maxlen=lag + 1)
        self._running = np.zeros(LANES)
        self._steps = config.num_steps
        self.returns: deque[float] = deque(maxlen=100)
        self._obs = self._envs.reset(seed=seed)[0]

    def publish(self, state: Mapping[str, np.ndarray]) -> None:
        """Take the learner's parameters. They act once ``lag`` later ones have come."""
        self._versions.append({name: state[name].copy() for name in ("actor", "critic")})

    def collect(self, slot: Arrays) -> None:
        """Fill a slot with one rollout."""
        self._policy.load(self._versions[0])
        count = 0
        for t in range(self._steps):
            given = self._act(self._obs)
            slot["obs"][t] = self._obs
            for name in ("action", "log_prob", "value"):
                slot[name][t] = given[name]
            self._obs, reward, terminated, truncated, infos = self._envs.step(given["action"])
            slot["reward"][t], slot["terminated"][t], slot["truncated"][t] = reward, terminated, truncated
            self._running += reward
            for lane in np.flatnonzero(terminated | truncated):
                self.returns.append(float(self._running[lane]))
                self._running[lane] = 0.0
            for lane in np.flatnonzero(truncated):
                last = np.stack([infos["final_obs"][lane]] * LANES)
                slot["final_t"][count], slot["final_lane"][count] = t, lane
                slot["final_value"][count] = self._act(last)["value"][0]
                count += 1
        slot["final_count"][...] = count
        slot["obs"][self._steps] = self._obs
        slot["value"][self._steps] = self._act(self._obs)["value"]

    def _act(self, obs: np.ndarray) -> Arrays:
        noise = self._generator.gumbel(size=(LANES, 2)).astype(np.float32)
        out = {name: np.empty(LANES, np.float32) for name in ("log_prob", "value")}
        out["action"] = np.empty(LANES, np.int64)
        self._policy.act({"obs": obs, "noise": noise, "explore": np.ones(LANES, np.float32)}, out)
        return out


class Judge:
    """Puts the learner's own probabilities into a rollout, in place of those of the policy that acted."""

    def __init__(self, config: IMPALAConfig) -> None:
        self._policy = PolicyKernel(layout_of(policy_graph(SPACES, config)))

    def __call__(self, state: Mapping[str, np.ndarray], slot: Arrays) -> None:
        """Change ``log_prob`` of a slot."""
        self._policy.load(state)
        rows = {name: slot[name].reshape(-1, *slot[name].shape[2:]) for name in ("obs", "action")}
        self._policy.judge(rows, slot["log_prob"].reshape(-1), np.empty(slot["value"].size, np.float32))


class Case(NamedTuple):
    """A run of the comparison."""

    lag: int
    """Age of the policy that acts, in updates."""
    corrects: bool
    """Whether the learner knows the probabilities of the policy that acted."""
    timesteps: int
    """Of all lanes together."""
    seed: int
    config: IMPALAConfig


def curve(case: Case) -> list[float]:
    """Mean return of the last 100 training episodes, at points of the run that lie equally far apart."""
    config = case.config
    described = spec(SPACES, config)
    specs = rollout_specs(SPACES, described.row, config.num_steps, LANES, same_step=True)
    arrays = {part.name: np.zeros((1, *part.shape), part.dtype) for part in specs}
    arrays["valid"][0, :-1] = True
    slot = {name: values[0, ...] for name, values in arrays.items()}
    updater = FusedUpdater(build(SPACES, config), described, arrays, threads=1)
    updater.load(init_state(SPACES, config, case.seed))
    play, judge = Lagging(case.lag, config, case.seed), Judge(config)
    generator = np.random.default_rng(case.seed)
    size = min(LANES, described.schedule.mini_batch_size)
    weights = np.ones((LANES // size, size), np.float32)
    updates = case.timesteps // (LANES * config.num_steps)
    found = []
    for update in range(updates):
        state = updater.state()
        play.publish(state)
        play.collect(slot)
        if not case.corrects:
            judge(state, slot)
        updater.begin([0], update / updates)
        updater.merge([0])
        updater.minibatches(generator.permutation(LANES).reshape(weights.shape), weights)
        updater.finish()
        if (update + 1) * POINTS // updates > update * POINTS // updates:
            found.append(statistics.mean(play.returns) if play.returns else 0.0)
    return found


def check_lanes(config: IMPALAConfig) -> None:
    """Check that all lanes go into minibatches of equal size.

    Raises:
        ValueError: they do not.
    """
    size = config.mini_batch_size
    if LANES % min(LANES, max(1, size // config.num_steps)):
        raise ValueError(f"{LANES} lanes of {config.num_steps} rows do not make minibatches of {size} rows")


def main() -> int:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lags", type=int, nargs="+", default=[0, 10, 50])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--timesteps", type=positive_int, default=300_000, help="at least 10,000 (default: %(default)s)"
    )
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default: %(default)s)")
    parser.add_argument("--adam_eps", type=float, default=1e-3, help="epsilon of Adam (default: %(default)s)")
    parser.add_argument(
        "--mini_batch_size", type=int, default=40, help="rows of a gradient step, of 160 a batch (default: %(default)s)"
    )
    parser.add_argument("--max_grad_norm", type=float, default=0.5, help="(default: %(default)s)")
    parser.add_argument(
        "--bound", type=float, default=1.0, help="of the weights, rho_bar and c_bar (default: %(default)s)"
    )
    parser.add_argument("--write", type=destination, help="file for the result; without it, results are only printed")
    args = parser.parse_args()
    if args.timesteps < LEAST:
        parser.error(f"--timesteps {args.timesteps} are too few for a curve; give at least {LEAST}")
    settings = {name: getattr(args, name) for name in ("lr", "mini_batch_size", "max_grad_norm", "adam_eps")}
    config = IMPALAConfig(**settings, rho_bar=args.bound, c_bar=args.bound)
    try:
        check_lanes(config)
    except ValueError as error:
        parser.error(f"{error}; give another --mini_batch_size")
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor() as pool:
        for lag, corrects in product(args.lags, (True, False)):
            cases = [Case(lag, corrects, args.timesteps, seed, config) for seed in args.seeds]
            curves = [[round(value, 2) for value in found] for found in pool.map(curve, cases)]
            returns = [found[-1] for found in curves]
            mean = statistics.mean(returns)
            rows.append({"lag": lag, "corrects": corrects, "returns": returns, "mean": mean, "curves": curves})
            kind = "V-trace" if corrects else "no correction"
            print(f"{lag} updates old, {kind}: {mean:.1f} {returns}", flush=True)
    if args.write:
        setting = {"seeds": args.seeds, "timesteps": args.timesteps, **settings, "bound": args.bound}
        write(args.write, {"command": command_of("python -m benchmarks.vtrace"), "setting": setting, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
