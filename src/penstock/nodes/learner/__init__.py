"""The learner: turns rollouts into new parameters, commits its state, publishes."""

from penstock.nodes.learner.keeper import KeeperSettings
from penstock.nodes.learner.node import LearnerNode, LearnerSettings
from penstock.nodes.learner.record import RETURN_WINDOW, VERDICT, record_specs, replay_record_specs, why_done
from penstock.nodes.learner.replay import ReplayLearnerNode, ReplayLearnerSettings
from penstock.nodes.learner.replica import ReplicaNode, ReplicaSettings, turn_specs
from penstock.nodes.learner.steps import StepSettings

__all__ = [
    "RETURN_WINDOW",
    "VERDICT",
    "KeeperSettings",
    "LearnerNode",
    "LearnerSettings",
    "ReplayLearnerNode",
    "ReplayLearnerSettings",
    "ReplicaNode",
    "ReplicaSettings",
    "StepSettings",
    "record_specs",
    "replay_record_specs",
    "turn_specs",
    "why_done",
]
