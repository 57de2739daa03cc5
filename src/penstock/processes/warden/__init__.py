"""The warden of a run, a process of its own: the parent of the other processes, which ends them and all they started.

It is ready in 20 ms, because it imports nothing that takes time: of Python's library a few modules, and nothing of
penstock. So its files import each other by relative names: the warden's process knows this package as ``warden``.
"""
