"""The Open Inference Protocol (KServe v2): a policy as a model of named tensors, over HTTP and over gRPC.

Its transports do not know each other.
"""
