"""What V-trace is worth: IMPALA with rollouts that are some updates old on purpose, with its correction and without.

    python -m benchmarks.vtrace                        # lags of 0, 10 and 50 updates, one seed; some minutes
    python -m benchmarks.vtrace --lr 3e-3 --seeds 0 1 2 --write FILE

A run is one loop in this process: a rollout of CartPole-v1 by the parameters of so many updates ago, then one update
from it. Without the correction, the learner is told that its own policy acted. The return is that of the last 100
training episodes.

The paper compares them in its table 2, https://arxiv.org/abs/1802.01561.
"""

import argparse
import statistics
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from benchmarks.record import destination, write
from penstock.algorithm import UpdaterSettings
from penstock.algorithms.appo.learn import LOG_PROB, judge
from penstock.algorithms.impala.learn import build
from penstock.algorithms.impala.spec import IMPALAConfig, spec
from penstock.algorithms.ppo.spec import policy_graph
from penstock.program.rollout import rollout_specs
from penstock.torch_networks.policy import Policy
from penstock.types import Box, Discrete, Spaces
from penstock.updates.eager import EagerUpdater

LANES = 8
SPACES = Spaces((("obs", Box((4,), "float32", (-1.0,) * 4, (1.0,) * 4)),), Discrete(2))
Arrays = dict[str, np.ndarray]


class Lagging:
    """CartPole-v1 in some lanes, played by the parameters of ``lag`` updates ago.

    Args:
        lag: in updates.
        config: of IMPALA.
        seed: of episodes, noise and first parameters.
    """

    def __init__(self, lag: int, config: IMPALAConfig, seed: int) -> None:
        makers = [lambda: gymnasium.make("CartPole-v1")] * LANES
        self._envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        self._generator = np.random.default_rng(seed)
        self._algorithm = build(SPACES, config)
        self._versions: deque[dict[str, torch.Tensor]] = deque(maxlen=lag + 1)
        self._running = np.zeros(LANES)
        self._steps = config.num_steps
        self.returns: deque[float] = deque(maxlen=100)
        self._obs = self._envs.reset(seed=seed)[0]

    def publish(self, state: Mapping[str, np.ndarray]) -> None:
        """Take the learner's parameters. They act once ``lag`` later ones have come."""
        self._versions.append({name: torch.tensor(state[name]) for name in ("actor", "critic")})

    def collect(self, slot: Arrays) -> None:
        """Fill a slot with one rollout."""
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
        inputs = {"obs": torch.from_numpy(obs), "noise": torch.from_numpy(noise), "explore": torch.ones(LANES)}
        with torch.no_grad():
            outputs = self._algorithm.act(self._versions[0], inputs)
        return {name: values.numpy() for name, values in outputs.items()}


def final_return(lag: int, corrects: bool, timesteps: int, lr: float, seed: int) -> float:
    """Mean return of the last 100 training episodes of a run.

    Args:
        lag: age of the policy that acts, in updates.
        corrects: whether the learner knows the probabilities of the policy that acted.
        timesteps: of all lanes together.
        lr: step size at the beginning of the run. The larger it is, the further policies are from each other.
        seed: of the run.
    """
    config = IMPALAConfig(mini_batch_size=LANES * IMPALAConfig.num_steps, lr=lr)
    described = spec(SPACES, config)
    specs = rollout_specs(SPACES, described.row, config.num_steps, LANES, same_step=True)
    arrays = {part.name: np.zeros((1, *part.shape), part.dtype) for part in specs}
    arrays["valid"][0, :-1] = True
    slot = {name: values[0, ...] for name, values in arrays.items()}
    algorithm = build(SPACES, config)
    settings = UpdaterSettings("", config, described, SPACES, "cpu", threads=1, seed=seed)
    updater = EagerUpdater(algorithm, settings, arrays)
    updater.load(algorithm.init_state(seed))
    policy, play = Policy(policy_graph(SPACES, config)), Lagging(lag, config, seed)
    lanes = np.arange(LANES)[None, :]
    updates = timesteps // (LANES * config.num_steps)
    for update in range(updates):
        state = updater.state()
        play.publish(state)
        play.collect(slot)
        if not corrects:
            tensors = {name: torch.from_numpy(values) for name, values in state.items()}
            with torch.no_grad():
                found = judge(policy, tensors, {name: torch.from_numpy(np.asarray(v)) for name, v in slot.items()})
            slot["log_prob"][...] = found[LOG_PROB].numpy()
        updater.begin([0], update / updates)
        updater.minibatches(lanes, np.ones((1, LANES), np.float32))
        updater.finish([0])
    return statistics.mean(play.returns)


def main() -> int:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lags", type=int, nargs="+", default=[0, 10, 50])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--timesteps", type=int, default=200_000)
    parser.add_argument("--lr", type=float, default=IMPALAConfig.lr, help="step size (default: %(default)s)")
    parser.add_argument("--write", type=destination, help="file for the result; without it, results are only printed")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for lag in args.lags:
        for corrects in (True, False):
            found = [final_return(lag, corrects, args.timesteps, args.lr, seed) for seed in args.seeds]
            rows.append({"lag": lag, "corrects": corrects, "returns": found, "mean": statistics.mean(found)})
            kind = "V-trace" if corrects else "no correction"
            print(
                f"{lag} updates old, {kind}: {rows[-1]['mean']:.1f} {[round(value, 1) for value in found]}", flush=True
            )
    if args.write:
        numbers = {"lags": args.lags, "seeds": args.seeds, "timesteps": [args.timesteps], "lr": [args.lr]}
        words = [f"--{name} {' '.join(map(str, given))}" for name, given in numbers.items()]
        write(args.write, {"command": " ".join(["python -m benchmarks.vtrace", *words]), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
