"""How gradients become steps: the optimizer, as data, in torch and natively; steps of scaled losses. No algorithm."""
