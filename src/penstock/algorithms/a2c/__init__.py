"""Synchronous advantage actor-critic over parallel environments, PAAC (Clemente et al. 2017, https://arxiv.org/abs/1705.04862)."""
