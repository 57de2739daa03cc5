"""Everything that is settled before a program is built: config, environment, algorithm, backends, starting points."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.algorithm import AlgorithmSpec
from penstock.config.episode_metrics import info_names
from penstock.config.schema import RunConfig
from penstock.games.settings import GamesSettings
from penstock.nodes.contract import LaneStart
from penstock.policies import PolicyGraph
from penstock.program.rollout import fields_beside_return
from penstock.registry import UpdateBackend
from penstock.saved_runs.demonstrations import Demonstrations
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Arrays, BackendSpec, EnvKind, EnvReference, Spaces

__all__ = ["EvaluationPlan", "LearningPlan", "Plan"]


@dataclass(frozen=True)
class LearningPlan:
    """Everything that belongs to one policy and its learner. A program may hold several."""

    spec: AlgorithmSpec
    algorithm_config: Any
    learn: str
    """``module:build`` of the algorithm's pure functions, or of its fused ones."""
    initial: str
    """``module:init_state`` of the algorithm. Imports no torch."""
    backend: UpdateBackend
    """The functions that build updaters, for each way of learning."""
    inference: BackendSpec
    """The backend that runs the policy."""


@dataclass(frozen=True)
class Plan:
    """Plain data that a topology turns into a program."""

    run: RunConfig
    learning: LearningPlan
    env: EnvReference
    reward: str | bytes | None
    """The own reward, as a name or pickled. ``None``: the environment's rewards."""
    spaces: Spaces
    kind: EnvKind
    same_step: bool
    own_cores: bool
    """Whether each environment process is pinned to a core."""
    num_steps: int
    """T: steps a rollout."""
    num_workers: int
    learner_threads: int
    folder: Path
    settings: str
    """Every setting of the run, as TOML."""
    manifest: dict[str, Any]
    starts: tuple[LaneStart, ...]
    """Starting point of each of the ``run.num_envs`` lanes."""
    demonstrations: tuple[Demonstrations, ...] = ()
    """Rows of other runs, which are learned from together with the run's own."""
    checkpoint: Path | None = None
    resumed_update: int = 0
    resumed_steps: int = 0
    resumed_s: float = 0.0
    """Seconds of training before."""
    games: GamesSettings | None = None
    """Where games connect; ``None``: the environments are stepped by the run."""
    quiet: bool = False
    """No display, files only."""
    first_lines: tuple[str, ...] = ()
    """Lines with which the log and the display begin."""
    modules: tuple[str, ...] = ()
    """Top-level modules that the user has named."""

    @property
    def beside_return(self) -> tuple[str, ...]:
        """The fields with further numbers of each episode, in a rollout."""
        return fields_beside_return(info_names(self.run.episode_metrics), shaped=self.reward is not None)


@dataclass(frozen=True)
class EvaluationPlan:
    """Everything that is settled before the program of an evaluation is built."""

    run: RunConfig
    name: str
    """Name of the environment, for messages."""
    env: EnvReference
    spaces: Spaces
    kind: EnvKind
    policy: PolicyGraph
    inference: BackendSpec
    """The backend that runs the policy."""
    published: Arrays
    """The policy's parameters and statistics."""
    num_workers: int
    """Number of environment processes of the run."""
    players: int
    """Most processes that play."""
    episodes: int
    seed: int
    seconds: float | None
    """Seconds after which no further episode begins, except the first five. ``None``: no limit."""
    quiet: bool
    """No display."""
    folder: RunFolder
    """Of the run whose policy plays."""
    keep: Path | None = None
    """Folder for the files of the episodes; ``None``: they are not kept."""
    first: int = 0
    """Number of the first episode: several machines play a share each."""
    first_player: int = 0
    """Number of the first player among those of all machines. An environment that resets itself is seeded by it."""
