"""Updaters, which turn a batch into a new state: the contract, shared parts, the backends. None knows an algorithm."""
