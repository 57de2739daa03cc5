"""Running a policy: the native kernel, ONNX Runtime or torch. Each file stands alone; none decides which is used."""
