"""The nodes that learn: they turn rollouts into new parameters, commit them and publish them.

Learners                                from a stream                                from a table
alone                                   `LearnerNode`                                `ReplayLearnerNode`
several replicas of the state           `LearnerNode`, `StreamReplicaNode`           `ReplayLearnerNode`, `ReplicaNode`
several that hand gradients on
  that wait for each other (sync)       `LearnerNode`, `BatchFollowerNode`           not built
  that do not (async, lag)              `StreamParameterNode`, `StreamFollowerNode`  `ParameterNode`, `FollowerNode`

The first node of a pair commits, and there is one of it. With K learners there are K - 1 replicas, or K followers.
``docs/architecture/several-learners.md`` says how they agree.
"""

from penstock.nodes.learner.batch_follower import BatchFollowerNode, BatchFollowerSettings
from penstock.nodes.learner.demonstrations import (
    DemonstrationSettings,
    DemonstrationSource,
    EpisodeDemonstrations,
    TableDemonstrations,
)
from penstock.nodes.learner.epochs import EpochSettings
from penstock.nodes.learner.follower import FollowerNode
from penstock.nodes.learner.goals import JOINING, batch_goal_specs, turn_goal_specs
from penstock.nodes.learner.handed_on_epochs import HandedOnEpochSettings
from penstock.nodes.learner.keeper import KeeperSettings
from penstock.nodes.learner.node import LearnerNode, LearnerSettings
from penstock.nodes.learner.parameter import ParameterNode, ParameterSettings
from penstock.nodes.learner.record import (
    VERDICT,
    parameter_record_specs,
    record_specs,
    replay_record_specs,
    stream_parameter_record_specs,
    why_done,
)
from penstock.nodes.learner.replay import ReplayLearnerNode, ReplayLearnerSettings
from penstock.nodes.learner.replica import ReplicaNode, ReplicaSettings
from penstock.nodes.learner.steps import StepSettings
from penstock.nodes.learner.stream_follower import StreamFollowerNode, StreamFollowerSettings
from penstock.nodes.learner.stream_parameter import StreamParameterNode, StreamParameterSettings
from penstock.nodes.learner.stream_replica import StreamReplicaNode, StreamReplicaSettings

__all__ = [
    "JOINING",
    "VERDICT",
    "BatchFollowerNode",
    "BatchFollowerSettings",
    "DemonstrationSettings",
    "DemonstrationSource",
    "EpisodeDemonstrations",
    "EpochSettings",
    "FollowerNode",
    "HandedOnEpochSettings",
    "KeeperSettings",
    "LearnerNode",
    "LearnerSettings",
    "ParameterNode",
    "ParameterSettings",
    "ReplayLearnerNode",
    "ReplayLearnerSettings",
    "ReplicaNode",
    "ReplicaSettings",
    "StepSettings",
    "StreamFollowerNode",
    "StreamFollowerSettings",
    "StreamParameterNode",
    "StreamParameterSettings",
    "StreamReplicaNode",
    "StreamReplicaSettings",
    "TableDemonstrations",
    "batch_goal_specs",
    "parameter_record_specs",
    "record_specs",
    "replay_record_specs",
    "stream_parameter_record_specs",
    "turn_goal_specs",
    "why_done",
]
