"""Loads the policy of a run or of a bundle, to act with it in this process. Exports nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.envs.given import given_of
from penstock.errors import BundleError, ConfigError
from penstock.paths import expanded
from penstock.processes.starts import Processes
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.bundle import BundlePolicy, is_bundle, read_bundle
from penstock.serving.policy import Policy
from penstock.trained import open_trained, policy_of
from penstock.types import EnvFactory

__all__ = ["load_policy"]


def load_policy(
    run: Path | str,
    *,
    checkpoint: str | int | None = None,
    precision: str | None = None,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
    reward: Callable[..., Any] | None = None,
) -> Policy:
    """Load the policy of a run, or of a bundle that `penstock.export` has made of one.

    For the policy of a server see `penstock.connect_policy`.

    Args:
        run: a run folder, or the folder of a bundle.
        checkpoint: of a run: its name, its update number, ``best`` or ``latest``; ``None``: the latest.
        precision: of a bundle: ``fp32``, ``int8`` or ``fp16``; ``None``: the one that it was exported for.
        env: of a run: as in `resume`.
        wrap: of a run: as in `resume`.
        reward: of a run: as in `resume`.

    Returns:
        The policy. It acts in this process, greedily.

    Raises:
        UsageError: no such run or bundle, a checkpoint or a bundle that cannot be used.

    Example:
        policy = penstock.load_policy("logs/pendulum", checkpoint="best")
        action = policy([1.0, 0.0, 0.0])
    """
    if not isinstance(run, str | Path):
        raise ConfigError(f"run is {run!r}; wanted the folder of a run or of a bundle")
    if isinstance(run, str) and "://" in run:
        raise ConfigError(f"{run} is the address of a server; its policy is penstock.connect_policy({run!r})")
    path = expanded(run)
    if is_bundle(path):
        if checkpoint is not None:
            raise BundleError(f"{path} is a bundle, which holds one checkpoint only; leave out checkpoint")
        bundle = read_bundle(path)
        return BundlePolicy(bundle, bundle.graph(precision))
    if precision is not None:
        raise ConfigError(f"precision {precision} is for bundles, and {path} is none; penstock export makes one")
    given, folder = given_of(env, wrap, reward), RunFolder.open(path)
    with Processes() as processes:
        trained = open_trained(processes, folder, checkpoint, given, "load_policy")
    return policy_of(trained.prepared, trained.arrays)
