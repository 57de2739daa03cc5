"""Recurrent experience replay in distributed reinforcement learning (Kapturowski et al. 2019, https://openreview.net/forum?id=r1lyTjAqYX)."""
