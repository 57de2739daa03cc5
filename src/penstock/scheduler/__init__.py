"""Inside a process: the event loop and the ports of its nodes. Above it: the worker's entry and the supervisor."""
