"""The server of ``penstock serve``: answers requests over sockets with a trained policy.

Protocols translate frames to calls. An `Endpoint` for each policy keeps the sessions and puts requests together into
batches. Nothing that comes over a socket is unpickled, and every size is checked before memory is taken for it.
"""
