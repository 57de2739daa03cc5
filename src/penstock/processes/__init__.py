"""The processes of a run: how they start, what they run, who ends them, and whether this machine has room for them."""
