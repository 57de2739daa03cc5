"""Distributional soft actor-critic with three refinements, DSAC-T (Duan et al. 2025, https://arxiv.org/abs/2310.05858)."""
