"""The peer's side of rounds that take turns: answers each line `WAY CALLS` with one line `RESULT {json}`.

It runs in the peers' own environments and imports nothing of penstock. `benchmarks/peers/rounds.py` asks it.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping


def answer(ways: Mapping[str, Callable[[], object]], missing: Mapping[str, str]) -> None:
    """Say which ways exist, then time calls until the input ends.

    Args:
        ways: name -> one call.
        missing: name -> why it cannot be called.
    """
    print("RESULT", json.dumps({"ways": list(ways), "missing": dict(missing)}), flush=True)
    for line in sys.stdin:
        way, calls = line.split()
        function, seconds = ways[way], []
        for _ in range(int(calls)):
            begun = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - begun)
        print("RESULT", json.dumps({"seconds": seconds}), flush=True)
