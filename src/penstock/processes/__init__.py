"""The processes of a run: how they start, what they run, who ends them, and whether they fit into this machine."""
