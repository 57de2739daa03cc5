"""Continual learning: goes on with a run's policy from the episodes that were kept while it was served.

A new version is published only if it is no worse on held-out episodes. Plays no environment, and serves nothing.
"""

from penstock.retraining.attempt import Retrained, retrain

__all__ = ["Retrained", "retrain"]
