"""Answers of a policy on a GPU: one torch call after the other, and as a CUDA graph; beside the CPU of its machine.

    python -m benchmarks.gpu_answers                # half a minute; needs a GPU and the extra `atari`
    python -m benchmarks.gpu_answers --write FILE

PPO's policy with the network of the Atari papers, and with two layers of 64. A time is that of one answer to so many
lanes, from arrays to arrays. On the CPU it is ONNX Runtime, or the native kernel, on one thread. Observations hold
random numbers. All is measured in turn, round by round; times are medians.
"""

import time
from typing import Any

import numpy as np
import torch

from benchmarks.measured import parser
from benchmarks.record import command_of, write
from benchmarks.varied import varied
from penstock.algorithm_lookup import find_algorithm, load_functions
from penstock.config.schema import RunConfig
from penstock.envs.sources import probe
from penstock.inference.torch import CapturedPolicy, TorchPolicy
from penstock.policies.batch_sizes import BatchSizes
from penstock.policies.native import supports
from penstock.program.rollout import rollout_specs
from penstock.registry import INFERENCE, load
from penstock.types import Arrays, PolicyBackend
from penstock.updates.made_up import made_up_inputs

LANES = (4, 16, 64)
OUTPUTS = ("action", "log_prob", "value")
ANSWERS = 100
"""Of each backend in each round."""
POLICIES = {"the network of the Atari papers": "ALE/Pong-v5", "two layers of 64": "Pendulum-v1"}
"""Policy -> environment whose spaces give it."""


def measure(rounds: int) -> list[dict[str, Any]]:
    """A row for each policy, number of lanes and backend."""
    rows = []
    package, cuda = find_algorithm("ppo"), torch.device("cuda")
    for policy, env in POLICIES.items():
        spaces, config = probe(env).spaces, package.config()
        spec = load(package.spec)(spaces, config)
        state = load(package.initial)(spaces, config, 0)
        act = load_functions(package.learn)(spaces, config).act
        on_cpu = "native" if supports(spec.policy) else "onnx"
        backends: dict[str, PolicyBackend] = {
            "GPU, captured": CapturedPolicy(act, cuda, BatchSizes(RunConfig.pad_batches)),
            "GPU, eager": TorchPolicy(act, cuda),
            f"CPU, {on_cpu}, 1 thread": load(INFERENCE[on_cpu].build)(spec.policy),
        }
        for backend in backends.values():
            backend.load({part.name: state[part.name] for part in spec.policy.published()})
        for lanes in LANES:
            inputs = varied(spaces, made_up_inputs(spec, spaces, lanes), np.random.default_rng(0))
            specs = rollout_specs(spaces, spec.row, 1, lanes, same_step=True)
            out = {part.name: np.zeros(part.shape[1:], part.dtype) for part in specs if part.name in OUTPUTS}
            for backend in backends.values():
                _answer_s(backend, inputs, out)  # The first answers make the graphs.
            taken = [[_answer_s(backend, inputs, out) for backend in backends.values()] for _ in range(rounds)]
            for number, what in enumerate(backends):
                median = float(np.median([one[number] for one in taken]))
                rows.append({"policy": policy, "what": what, "lanes": lanes, "answer_us": round(median * 1e6, 1)})
                print(*(f"{name}: {value}" for name, value in rows[-1].items()), sep=", ", flush=True)
    return rows


def _answer_s(backend: PolicyBackend, inputs: Arrays, out: Arrays) -> float:
    begun = time.perf_counter()
    for _ in range(ANSWERS):
        backend.act(inputs, out)
    return (time.perf_counter() - begun) / ANSWERS


def main() -> None:
    """Measure, print, and write if asked to."""
    arguments = parser("gpu_answers", __doc__, rounds=5)
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        arguments.error("torch finds no GPU here")
    gpu = torch.cuda.get_device_name()
    result = {"command": command_of(arguments.prog), "gpu": gpu, "rows": measure(given.rounds)}
    if given.write:
        write(given.write, result)


if __name__ == "__main__":
    main()
