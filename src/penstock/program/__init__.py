"""The graph of a run as data: nodes, edges, placement. It is built, checked and drawn before anything starts."""
