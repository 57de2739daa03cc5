"""The server of ``penstock serve``: answers requests over sockets with a trained policy.

A connection brings a request, a protocol reads it, an endpoint decides which version answers, and an engine answers.
Nothing that comes over a socket is unpickled, and every size is checked before memory is taken for it. Games that train
come in by the same protocols; what happens to them then is in `penstock.games`.
"""
