"""Proximal policy optimisation with a clipped surrogate (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)."""
