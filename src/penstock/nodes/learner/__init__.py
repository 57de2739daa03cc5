"""The learner: turns rollouts into new parameters, commits its state, publishes."""

from penstock.nodes.learner.keeper import KeeperSettings
from penstock.nodes.learner.node import LearnerNode, LearnerSettings
from penstock.nodes.learner.record import RETURN_WINDOW, VERDICT, record_specs, why_done

__all__ = ["RETURN_WINDOW", "VERDICT", "KeeperSettings", "LearnerNode", "LearnerSettings", "record_specs", "why_done"]
