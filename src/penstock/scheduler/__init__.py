"""Which node runs next: the event loop of each process."""
