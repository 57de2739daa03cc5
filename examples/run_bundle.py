"""Runs a bundle of ``penstock export`` with NumPy and ONNX Runtime alone: no penstock, no torch.

    penstock export RUN --out policy
    python run_bundle.py policy

It answers the bundle's own sample of observations and compares the actions with those of the trained network.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

bundle = Path(sys.argv[1])
manifest = json.loads((bundle / "manifest.json").read_text())
session = onnxruntime.InferenceSession(bundle / "policy.onnx", providers=["CPUExecutionProvider"])

sample = np.load(bundle / "sample.npz")
# Every input and output is an array [n, ...]. Here n is the number of observations in the sample.
inputs = {port["name"]: sample[f"input.{port['name']}"] for port in manifest["inputs"]}
names = [port["name"] for port in manifest["outputs"] if port["role"] == "action"]
for name, action in zip(names, session.run(names, inputs), strict=True):
    error = np.abs(action.astype(float) - sample[f"output.{name}"]).max()
    print(f"{name} of {manifest['run']['env']}: {len(action)} answers, largest error {error:.1e}")
