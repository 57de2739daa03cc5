"""How gradients become steps: which optimizer an algorithm uses, as data, in torch and natively. No algorithm."""
