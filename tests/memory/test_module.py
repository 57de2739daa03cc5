"""Loading the native module does not change how a process computes."""

import subprocess
import sys


def test_denormals_stay_after_the_module_is_loaded() -> None:
    # A library linked with -ffast-math sets flush-to-zero for the whole process: 1e-40 * 0.5 would be 0.
    source = """
import numpy as np
from penstock.memory import _native
small = np.array([1e-40], np.float32) * np.float32(0.5)
assert small[0] > 0, small
assert 5e-324 * 1.0 > 0
"""
    subprocess.run([sys.executable, "-c", source], check=True)


def test_the_room_needs_numpy_only() -> None:
    source = """
import sys
from penstock.memory import action_log, board, counters, doorbell, layout, lifeline, record, segment, stream
loaded = {name.split(".")[0] for name in sys.modules}
foreign = loaded & {"torch", "gymnasium", "onnxruntime", "onnx", "matplotlib"}
assert not foreign, foreign
"""
    subprocess.run([sys.executable, "-c", source], check=True)
