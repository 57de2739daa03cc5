"""The Open Inference Protocol over gRPC: the port, the calls, their messages, and how requests are read within bounds.

Only `transport.py` imports gRPC. Requests are read here and not by protobuf, which takes memory before it counts.
"""
