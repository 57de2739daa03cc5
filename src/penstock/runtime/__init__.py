"""From a program to running processes: inline (one process, deterministic), local (one machine)."""
