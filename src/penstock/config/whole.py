"""A whole config: the settings of a run and of its algorithm, and the check that they fit each other."""

from dataclasses import dataclass, fields
from typing import Any

from penstock.config.demonstrations import check_demonstrations
from penstock.config.episode_metrics import check_episode_metrics
from penstock.config.fields import fields_of
from penstock.config.opponents import check_opponents
from penstock.config.runtimes import check_runtime
from penstock.config.schema import RunConfig
from penstock.config.values import from_value
from penstock.config.workers import check_num_workers
from penstock.errors import ConfigError
from penstock.registry import RUNTIMES

__all__ = ["Config"]


@dataclass(frozen=True)
class Config:
    """A whole config, frozen. All values are in range and fit each other.

    `penstock.from_mapping` makes one from setting names and values, `penstock.from_toml` from a file.

    Attributes:
        run: the settings of the run.
        algorithm: the hyper-parameters: the frozen config dataclass of the algorithm that ``run.algo`` names.

    Raises:
        ConfigError: a value is out of range, or two values do not fit each other.
    """

    run: RunConfig
    algorithm: Any

    def __post_init__(self) -> None:
        for part in (self.run, self.algorithm):
            for setting in fields_of(type(part)):
                from_value(setting, getattr(part, setting.name), setting.name)
        _check_together(self.run)

    def values(self) -> dict[str, Any]:
        """Every setting by its name, in one namespace: the run's, then the algorithm's."""
        return {item.name: getattr(part, item.name) for part in (self.run, self.algorithm) for item in fields(part)}


def _check_together(run: RunConfig) -> None:
    """Check that settings fit each other."""
    if run.num_workers != "auto":
        check_num_workers(run.num_workers, run.num_envs)
    if run.early_stop and not run.eval_interval:
        raise ConfigError(
            "--early_stop counts evaluations during the run, and there are none; give --eval_interval as well"
        )
    if run.eval_interval and not run.eval_episodes:
        raise ConfigError("--eval_interval needs episodes to judge by; give --eval_episodes as well, at least 1")
    if run.bad_numbers == "skip" and run.sync_mode == "blocking":
        raise ConfigError(
            "--bad_numbers skip needs --sync_mode non_blocking: in lock step an update waits for every lane's rollout"
        )
    check_demonstrations(run)
    check_episode_metrics(run.episode_metrics)
    check_opponents(run)
    _check_cluster(run)
    if run.learners > 1 and not RUNTIMES[run.runtime].processes:
        apart = " or ".join(name for name in RUNTIMES.names() if RUNTIMES[name].processes)
        raise ConfigError(f"--learners {run.learners} needs --runtime {apart}: learners wait for each other")
    for name in ("policy_nodes", "max_batch", "max_wait"):
        if run.policy_placement != "node" and getattr(run, name) != getattr(RunConfig, name):
            raise ConfigError(f"--{name} needs --policy_placement node: with env there are no policy nodes")
    if run.num_workers != "auto" and run.policy_nodes > run.num_workers:
        raise ConfigError(
            f"--policy_nodes {run.policy_nodes} is more than --num_workers {run.num_workers}; give at most "
            f"{run.num_workers} policy nodes, or more processes"
        )


def _check_cluster(run: RunConfig) -> None:
    """Check what only a run on a cluster has, and what it cannot have."""
    check_runtime(run.runtime, distributed=run.distributed, address=run.address)
    machines = RUNTIMES[run.runtime].machines
    if run.resources is not None and not machines:
        raise ConfigError(
            "--resources is what nodes ask a Ray cluster for; give --distributed True, and no other --runtime"
        )
    answering = run.resources is not None and "policy" in run.resources.asked
    if answering and run.policy_placement != "node":
        raise ConfigError(
            "--resources says what policy nodes ask for, and there are none; give --policy_placement node as well, or "
            "leave policy out"
        )
    if answering and run.min_workers is not None:
        raise ConfigError(
            "--min_workers asks Ray for machines without knowing how many will come, and each would need room for "
            "policy nodes; leave policy out of --resources, or give --min_workers none"
        )
    if run.table_on != RunConfig.table_on and not machines:
        raise ConfigError(
            f"--table_on {run.table_on} puts the table on machines of a Ray cluster; give --distributed True, "
            "and no other --runtime"
        )
    if run.min_workers is not None:
        if run.resources is None or "env" not in run.resources.asked:
            raise ConfigError(
                "--min_workers counts processes with room for what they ask for; give --resources as well, such as "
                '"env: {cpu: 1}", or --min_workers none'
            )
        if run.num_workers != "auto" and run.min_workers > run.num_workers:
            raise ConfigError(f"--min_workers {run.min_workers} is more than --num_workers {run.num_workers}")
