"""The trained policy: as a Python function, and as an exported ONNX file."""
