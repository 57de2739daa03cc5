"""Clients that ask a server as fast as it answers: ``penstock bench-serve``, and benchmarks. No part of the server."""
