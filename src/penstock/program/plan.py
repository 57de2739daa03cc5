"""Everything that is settled before a program is built: config, environment, algorithm, backends, where to begin."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.algorithm import AlgorithmSpec
from penstock.config.schema import RunConfig
from penstock.experiments.demonstrations import Demonstrations
from penstock.nodes.contract import LaneStart
from penstock.policies import PolicyGraph
from penstock.registry import UpdateBackend
from penstock.types import Arrays, BackendSpec, EnvReference, Spaces

__all__ = ["EvaluationPlan", "Plan"]


@dataclass(frozen=True)
class Plan:
    """Plain data that a topology turns into a program."""

    run: RunConfig
    algorithm_config: Any
    env: EnvReference
    reward: str | bytes | None
    """The user's own, in place of the environment's: by its name, or pickled."""
    spaces: Spaces
    kind: Literal["scalar", "vector"]
    """Whether environments take their turns, or are stepped by one call."""
    same_step: bool
    own_cores: bool
    """Whether each environment process keeps to a core."""
    spec: AlgorithmSpec
    num_steps: int
    """T: steps a rollout."""
    num_workers: int
    learner_threads: int
    learn: str
    """``module:build`` of the algorithm's pure functions."""
    initial: str
    """``module:init_state`` of the algorithm, torch-free."""
    update: UpdateBackend
    """Where updaters are made, for each way of learning."""
    inference: BackendSpec
    """What runs the policy."""
    folder: Path
    manifest: dict[str, Any]
    starts: tuple[LaneStart, ...]
    """One for each of ``run.num_envs`` lanes."""
    demonstrations: Demonstrations | None = None
    """Learned from beside the run's own experience."""
    checkpoint: Path | None = None
    resumed_update: int = 0
    resumed_steps: int = 0
    quiet: bool = False
    """No display, files only."""
    told: tuple[str, ...] = ()
    """Lines that the display begins with."""

    @property
    def shaped(self) -> bool:
        """Whether rewards are the user's own, so that episodes have two returns."""
        return self.reward is not None


@dataclass(frozen=True)
class EvaluationPlan:
    """Everything that is settled before the program of an evaluation is built: who plays what, how often, how long."""

    run: RunConfig
    name: str
    """Of the environment, for messages."""
    env: EnvReference
    spaces: Spaces
    kind: Literal["scalar", "vector"]
    """Whether environments take their turns, or are stepped by one call."""
    policy: PolicyGraph
    inference: BackendSpec
    """What runs the policy."""
    published: Arrays
    """The policy's parameters and statistics."""
    num_workers: int
    """Environment processes of the run; as many play."""
    episodes: int
    seed: int
    seconds: float | None
    """After so many, no further episode begins, but for the first five; ``None``: there is no limit."""
    quiet: bool
    """No display."""
    deaths: Path
    """Gets the tracebacks of processes that are started again."""
