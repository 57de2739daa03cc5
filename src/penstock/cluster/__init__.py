"""Runs a program on the machines of a Ray cluster. Only this package and `penstock.tune` import Ray.

`launch` is the way in; `places` says which machine runs which nodes, and `seats` which has policy nodes. On each other
machine a `Host` runs environment nodes, policy nodes and learners over shared memory of its own. `Relay` joins the
hosts with the run's own segment.
"""
