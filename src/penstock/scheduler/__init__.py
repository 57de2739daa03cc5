"""Who runs when: the event loop of a process, and the supervisor of all of them, with what it knows and takes back."""
