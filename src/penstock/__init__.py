"""penstock trains reinforcement-learning policies in parallel and puts the same policy into production.

    import penstock

    result = penstock.train({"env": "CartPole-v1", "timesteps": 100_000})
    action = result.policy([0.0, 0.0, 0.0, 0.0])

- Train: `train`, `resume`, `ParallelPPO`, `DistributedPPO`. They return a `Result`.
- Settings: `Config` and `RunConfig`, made by `from_mapping` or `from_toml`. `draw` shows the processes of a run.
- Look at a run: `evaluate`, `watch`, `read_metrics`.
- Act: `load_policy` and `connect_policy` give a `Policy`. `MPPI` plans without training.
- Bring a policy into production: `export`, `verify`. `retrain` learns from what was served.
- A learner of your own: `ParallelEnvironmentCollector`, `ReplayBuffer`, `write_episodes`.
- A game that connects to a run: `Agent`, `Game`, `State`.
- Errors: all are a `PenstockError`. A `UsageError` is a mistake that the caller can correct.

Names are loaded on use, so that ``import penstock`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.collector import ParallelEnvironmentCollector
    from penstock.config.schema import RunConfig
    from penstock.config.sources import from_mapping, from_toml
    from penstock.config.whole import Config
    from penstock.deployment import export, verify
    from penstock.errors import (
        BadDataError,
        BundleError,
        CheckpointError,
        ConfigError,
        DamagedError,
        DeviceError,
        EnvError,
        FencedError,
        LostError,
        NoClusterError,
        NodeError,
        NoEffectError,
        PenstockError,
        ResourceError,
        RunFolderError,
        SnapshotError,
        SpaceError,
        StallError,
        UsageError,
    )
    from penstock.evaluation import Evaluation
    from penstock.games.agent import Agent, Game, State
    from penstock.mppi import MPPI
    from penstock.parallel_ppo import DistributedPPO, ParallelPPO
    from penstock.replay.buffer_writer import BufferWriter
    from penstock.replay_buffer import ReplayBuffer
    from penstock.retraining import Retrained, retrain
    from penstock.run import Result, draw, evaluate, load_policy, resume, train
    from penstock.saved_runs.recordings import write_episodes
    from penstock.saved_runs.run_metrics import Metrics, read_metrics
    from penstock.serving.policy import Policy
    from penstock.serving.remote_policy import RemotePolicy, connect_policy
    from penstock.watching import Watched, watch

__version__ = "0.1.0"

__all__ = [
    "MPPI",
    "Agent",
    "BadDataError",
    "BufferWriter",
    "BundleError",
    "CheckpointError",
    "Config",
    "ConfigError",
    "DamagedError",
    "DeviceError",
    "DistributedPPO",
    "EnvError",
    "Evaluation",
    "FencedError",
    "Game",
    "LostError",
    "Metrics",
    "NoClusterError",
    "NoEffectError",
    "NodeError",
    "ParallelEnvironmentCollector",
    "ParallelPPO",
    "PenstockError",
    "Policy",
    "RemotePolicy",
    "ReplayBuffer",
    "ResourceError",
    "Result",
    "Retrained",
    "RunConfig",
    "RunFolderError",
    "SnapshotError",
    "SpaceError",
    "StallError",
    "State",
    "UsageError",
    "Watched",
    "connect_policy",
    "draw",
    "evaluate",
    "export",
    "from_mapping",
    "from_toml",
    "load_policy",
    "read_metrics",
    "resume",
    "retrain",
    "train",
    "verify",
    "watch",
    "write_episodes",
]

_HOMES = {
    "penstock.collector": ("ParallelEnvironmentCollector",),
    "penstock.config.schema": ("RunConfig",),
    "penstock.config.whole": ("Config",),
    "penstock.config.sources": ("from_mapping", "from_toml"),
    "penstock.deployment": ("export", "verify"),
    "penstock.parallel_ppo": ("DistributedPPO", "ParallelPPO"),
    "penstock.games.agent": ("Agent", "Game", "State"),
    "penstock.evaluation": ("Evaluation",),
    "penstock.mppi": ("MPPI",),
    "penstock.replay.buffer_writer": ("BufferWriter",),
    "penstock.replay_buffer": ("ReplayBuffer",),
    "penstock.retraining": ("Retrained", "retrain"),
    "penstock.run": ("Result", "draw", "evaluate", "load_policy", "resume", "train"),
    "penstock.saved_runs.recordings": ("write_episodes",),
    "penstock.saved_runs.run_metrics": ("Metrics", "read_metrics"),
    "penstock.serving.policy": ("Policy",),
    "penstock.serving.remote_policy": ("RemotePolicy", "connect_policy"),
    "penstock.watching": ("Watched", "watch"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a name stands for anything
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF.get(name, "penstock.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
