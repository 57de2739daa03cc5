"""Soft actor-critic with twin critics and a learned temperature (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905)."""
