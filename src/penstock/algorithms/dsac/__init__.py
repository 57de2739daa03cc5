"""Distributional soft actor-critic with one critic (Duan et al. 2021, https://arxiv.org/abs/2001.02811)."""
