"""Policy backends: the native kernel, ONNX Runtime and torch. Each file stands alone; none decides which one runs."""
