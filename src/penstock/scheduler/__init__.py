"""Who runs when: the event loop of each process, and the supervisor, which restarts processes and ends the run."""
