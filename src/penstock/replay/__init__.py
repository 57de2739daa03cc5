"""Sampling rows from tables: which rows, and how often. Knows no process."""
