"""Runs a bundle in a control loop with NumPy and ONNX Runtime alone, and shows how late its answers are.

    penstock export RUN --out policy
    python control_loop.py policy --hz 100 --seconds 60 --limit_us 2000

It reads rows of the bundle's sample as if they were a machine's. Put yours at the places marked PLANT. It shows what
was seen on this computer for so long, and no bound: Python and a general-purpose system promise none.

    answer           p50 246 us, p99 570 us, p99.9 2,934 us, longest 3,799 us
    wake-up late by  p50 124 us, p99 3,714 us, p99.9 16,505 us, longest 21,681 us; 6 of 2,002 deadlines missed

That was a policy of SAC on a computer that was busy with other work. The exit code is 1 if the longest
answer took more than --limit_us.
"""

import argparse
import gc
import json
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

WARM_UP = 100
"""Calls that are not counted: the first ones take memory for what lies between the layers."""


class Policy:
    """The graph on one thread, for one machine. It feeds the memory of a policy that has one back."""

    def __init__(self, bundle: Path, manifest: dict) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(bundle / "policy.onnx", options, providers=["CPUExecutionProvider"])
        inputs = manifest["inputs"]
        carries = [port for port in inputs if port["role"] == "carry"]
        self.carry = {port["name"]: np.zeros((1, *port["shape"][1:]), port["dtype"]) for port in carries}
        self.first = {port["name"]: np.ones(1, bool) for port in inputs if port["role"] == "first"}
        self.actions = [port["name"] for port in manifest["outputs"] if port["role"] == "action"]
        self.outputs = [*self.actions, *(f"next.{name}" for name in self.carry)]

    def __call__(self, observation: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The actions ``[1, ...]`` for an observation with fields ``[1, ...]``, in the manifest's order."""
        found = self.session.run(self.outputs, {**observation, **self.first, **self.carry})
        self.carry = dict(zip(self.carry, found[len(self.actions) :], strict=True))
        for first in self.first.values():
            first[:] = False  # At an episode's begin it is True: then the memory counts as zero.
        return found[: len(self.actions)]


def bounds(space: dict, name: str, without: float) -> np.ndarray:
    """The bounds of a Box in its shape. The manifest has null where there is none."""
    numbers = [without if bound is None else bound for bound in space[name]]
    return np.float64(numbers).reshape(space["shape"])


def shown(name: str, seconds: list[float]) -> str:
    """A line of the table."""
    p50, p99, p999, longest = np.quantile(seconds, [0.5, 0.99, 0.999, 1.0]) * 1e6
    return f"{name:<16} p50 {p50:,.0f} us, p99 {p99:,.0f} us, p99.9 {p999:,.0f} us, longest {longest:,.0f} us"


def main() -> int:
    """Runs the loop and prints what it has seen. Gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--hz", type=float, default=100.0, help="answers a second; default 100")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure; default 60")
    parser.add_argument("--limit_us", type=float, help="exit code 1 if an answer takes longer; microseconds")
    given = parser.parse_args()

    manifest = json.loads((given.bundle / "manifest.json").read_text())
    sample = np.load(given.bundle / "sample.npz")
    if any(port["role"] == "noise" for port in manifest["inputs"]):
        parser.error(f"{given.bundle} explores: export it without --noise")
    fields = [port["name"] for port in manifest["inputs"] if port["role"] in {"observation", "action_mask"}]
    rows = {name: sample[f"input.{name}"] for name in fields}
    space = manifest["spaces"]["action"]
    if space["kind"] == "box":
        low, high = bounds(space, "low", -np.inf), bounds(space, "high", np.inf)
    policy = Policy(given.bundle, manifest)

    period, calls = 1.0 / given.hz, WARM_UP + max(1, round(given.seconds * given.hz))
    answers: list[float] = []
    wakes: list[float] = []
    periods, missed, sent = 0, 0, None
    gc.collect()
    gc.disable()  # Otherwise Python may stop for a collection between two deadlines.
    due = time.perf_counter()
    for call in range(calls):
        due += period  # An absolute time: a late period does not shift those after it.
        time.sleep(max(0.0, due - time.perf_counter()))
        woken = time.perf_counter()

        # PLANT: read the sensors, each field [1, ...] in the dtype of the manifest.
        at = call % len(rows[fields[0]])
        observation = {name: values[at : at + 1] for name, values in rows.items()}

        begun = time.perf_counter()
        actions = policy(observation)
        answered = time.perf_counter()

        # PLANT: bound the change from the action before, then clip to what the machine takes.
        if space["kind"] == "box":
            most = 0.1 * (high - low)  # A tenth of the range a period. Without finite bounds it bounds nothing.
            wanted = actions[0][0] if sent is None else np.clip(actions[0][0], sent - most, sent + most)
            sent = np.clip(wanted, low, high)

        # PLANT: send it, or fall back (hold, brake, a controller that you trust) where it is late or no number.
        late = answered - due > period
        finite = all(np.isfinite(action).all() for action in actions)
        if late or not finite:
            sent = None  # The machine falls back here.

        if call >= WARM_UP:
            answers.append(answered - begun)
            wakes.append(woken - due)
            periods, missed = periods + 1, missed + late
        while time.perf_counter() > due + 2 * period:  # The next period is over, too: skip it, for nobody waits for it.
            due += period
            if call >= WARM_UP:
                periods, missed = periods + 1, missed + 1

    print(shown("answer", answers))
    print(f"{shown('wake-up late by', wakes)}; {missed:,} of {periods:,} deadlines missed")
    return int(given.limit_us is not None and max(answers) * 1e6 > given.limit_us)


sys.exit(main())
