"""Runs a program to its end: ``inline`` in one process, deterministic; ``local`` in many processes on one machine."""
