"""Asynchronous proximal policy optimisation: PPO on rollouts of older policies, corrected by V-trace (Luo et al. 2020, https://arxiv.org/abs/1912.00167)."""
