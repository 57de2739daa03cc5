"""Runs a program on the machines of a Ray cluster. Only this package and `penstock.tune` import Ray.

`launch` is the way in; `shares` says which machine runs which environment nodes. On each machine a `Host` runs
environment processes over shared memory of its own. `Relay` joins the hosts with the run's own segment.
"""
