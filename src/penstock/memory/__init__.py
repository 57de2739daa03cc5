"""Shared memory: segments, their layout, and lock-free structures in them. Knows no reinforcement learning."""
