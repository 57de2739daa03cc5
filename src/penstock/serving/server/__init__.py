"""The server of ``penstock serve``: answers requests over sockets with a trained policy.

Protocols translate frames to calls of one `Endpoint`. The endpoint keeps sessions and puts requests together to
batches. Nothing that comes over a socket is unpickled, and every size is checked before
memory is taken for it.
"""
