"""The graph of a run as data: nodes, edges, placement; built, checked and drawn without starting anything."""
