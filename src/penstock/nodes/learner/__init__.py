"""The learner: turns rollouts into new parameters, commits its state, publishes."""

from penstock.nodes.learner.node import LearnerNode, LearnerSettings
from penstock.nodes.learner.record import RETURN_WINDOW, record_specs

__all__ = ["RETURN_WINDOW", "LearnerNode", "LearnerSettings", "record_specs"]
