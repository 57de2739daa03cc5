"""How several learners agree: all of them on one gradient, or each with a node that owns the parameters."""
