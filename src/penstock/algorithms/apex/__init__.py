"""Distributed prioritised replay, Ape-X DQN (Horgan et al. 2018, https://arxiv.org/abs/1803.00933)."""
