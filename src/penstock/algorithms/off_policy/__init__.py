"""What algorithms that learn from a table share: hyper-parameters, arrays of the state, steps. No algorithm."""
