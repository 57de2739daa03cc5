"""From a batch to a new state: the contract, what its backends share, and the backends. None knows an algorithm."""
