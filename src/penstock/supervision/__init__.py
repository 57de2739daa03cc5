"""Which processes live: what notices that one died or hangs, restarts it, recovers what it held, and ends the run."""
