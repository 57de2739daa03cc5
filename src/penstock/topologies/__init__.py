"""Builds the program of a plan: its nodes and edges. One file for each topology.

What all trainings have in common: ``training.py`` has the graph. Each kind of node has a file: ``env_nodes.py``,
``acting.py`` (policy nodes), ``learners.py``, ``evaluator.py``, ``monitor.py`` (with the checkpointer).
"""
