"""Importance weighted actor-learner architecture, with V-trace (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561)."""
