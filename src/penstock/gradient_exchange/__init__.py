"""How several learners work together: with one mean gradient, or with a node that owns the parameters."""
