"""Asynchronous advantage actor-critic, A3C (Mnih et al. 2016, https://arxiv.org/abs/1602.01783)."""
