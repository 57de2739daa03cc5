"""What a run can be told, with every default, and a whole config that holds only values that fit each other.

An algorithm's own hyper-parameters stand in its ``spec.py``. Reads no file, and decides nothing that is ``auto``.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from penstock.config.fields import BY_NETWORKS, Value, Wrapping, fields_of
from penstock.config.values import from_value
from penstock.config.workers import check_num_workers
from penstock.errors import ConfigError
from penstock.registry import INFERENCE, RUNTIMES, UPDATES, texts_of

__all__ = ["AUTO", "Config", "RunConfig"]

AUTO = "auto"
"""Of a setting: this machine, and what is run, decide."""


def _setting(default: Value, text: str, **bounds: Value) -> Any:  # noqa: ANN401  (a field stands for its value)
    return field(default=default, metadata={"help": text, **bounds})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How to run: everything that is not the algorithm's."""

    env: str = field(
        metadata={
            "help": "Gymnasium id, envpool:task, or module:name of what makes an environment",
            "pattern": r"(?s).*\S.*",
            "form": "the name of an environment",
            "fixed": "its checkpoints are of this environment",
        }
    )
    env_args: dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": """its keyword arguments, as JSON: '{"config": {"duration": 20}}'; in TOML a table""",
            "fixed": "it was trained on the environment that they make",
        },
    )
    wrap: tuple[Wrapping, ...] | None = _setting(
        None,
        "wrappers around each environment, the first one innermost, by repeating the flag or parted by commas; with "
        'arguments in TOML: wrap = [{use = "module:Wrapper", arguments = {size = 84}}]',
        adds=True,
        fixed="it was trained on the environment in these wrappers",
    )
    reward: str | None = _setting(
        None,
        "what gives a reward of your own in place of the environment's: a function for each step, or a class for "
        "each episode (docs/environments.md); returns that are reported stay the environment's",
        pattern=r"(?s).*\S.*",
        form="module:name of a function or a class",
        fixed="its values were learned of these rewards",
    )
    algo: str = _setting(
        "ppo",
        "algorithm: a name that `penstock algos` lists, or your own package, such as my_package.my_algorithm",
        pattern=r".+",
        form="the name of an algorithm",
        fixed="its checkpoints are this algorithm's",
    )
    num_envs: int = _setting(
        8,
        "environments that are stepped side by side (lanes)",
        min=1,
        max=1_000_000,
        fixed="its checkpoints say where each of its lanes stands",
    )
    num_workers: int | Literal["auto"] = _setting(
        "auto", "environment processes; auto: one a core; non_blocking leaves 2 cores to the rest where it can", min=1
    )
    timesteps: int = _setting(1_000_000, "environment steps of the whole run", min=1)
    sync_mode: Literal["blocking", "non_blocking"] = _setting(
        "blocking",
        "blocking: lock step, repeatable bit for bit; non_blocking: collection overlaps learning",
        fixed="its lanes stand where this mode has left them",
    )
    runtime: str = _setting("local", texts_of(RUNTIMES), choices=RUNTIMES.names())
    device: str = _setting("cpu", "where the learner computes", pattern=r"cpu|cuda(:\d+)?", form="cpu, cuda or cuda:N")
    backend: str = _setting(
        AUTO,
        "how an update runs; auto: fused (native, without torch) where it applies, else compiled for runs of 300,000 "
        "steps and more, or of 20,000 gradient steps from a table, where a compiler is installed",
        choices=(AUTO, *UPDATES.names()),
    )
    inference: str = _setting(
        AUTO,
        "what computes actions; auto: native where it can, then onnx on the CPU, then torch",
        choices=(AUTO, *INFERENCE.names()),
    )
    policy_placement: Literal["env", "node"] = _setting(
        "env", "where actions are computed; env: in each environment process; node: in policy nodes, in batches"
    )
    policy_nodes: int = _setting(1, "policy nodes, which share the environment processes", min=1)
    threads: int | Literal["auto"] = _setting(
        "auto",
        "threads of each learner, at most one a core; auto: 2 for the fused update, which has work for no more, every "
        "free core for image and wide networks, else 1",
        min=1,
        max=1024,
    )
    learners: int = _setting(
        1,
        "learner processes, for algorithms that learn from a table; in lock step they share each minibatch",
        min=1,
        max=12,
    )
    accumulate: int = _setting(
        1,
        "parts of a minibatch, whose gradients are averaged before a step, as if it were whole: for minibatches too "
        "large for memory",
        min=1,
    )
    table_bytes: int | None = _setting(
        None, "bytes that a replay table may take, such as 4e9: of --capacity it keeps as many rows as fit", min=1
    )
    demonstrations: str | None = _setting(
        None, "run folder whose replay table is learned from as well, beside this run's own experience"
    )
    demonstration_share: float = _setting(0.25, "part of each minibatch that comes from there", min=0, max=1)
    seed: int = _setting(
        0, "makes a run repeatable", min=0, max=2**63 - 1, fixed="its episodes and its noise are drawn from it"
    )
    log_dir: str = _setting(
        "./logs", "run folders go here", pattern=r"(?s).+", form="a folder", fixed="it goes on in its own folder"
    )
    save_interval: int = _setting(50, "updates between checkpoints", min=1)
    keep_checkpoints: int = _setting(5, "how many of the last checkpoints are kept, beside the best", min=1)
    log_interval: int = _setting(10, "updates between printed lines", min=1)
    target_return: float | None = _setting(None, "stop once the last 100 training episodes average this return")
    eval_interval: int = _setting(
        0,
        "updates between evaluations during the run; 0: only at its end. Of an update that --save_interval gives a "
        "checkpoint as well, it decides which checkpoint is the best",
        min=0,
    )
    eval_episodes: int = _setting(100, "greedy episodes of one evaluation", min=1)
    eval_seconds: float = _setting(
        60.0,
        "seconds in which the evaluation at a run's end begins episodes; its first 5 are begun in any case, and all "
        "that are begun are played to their end. `penstock eval` has no such limit",
        min=1,
    )
    early_stop: int = _setting(0, "stop after this many evaluations without improvement; 0: never", min=0)
    max_policy_lag: int = _setting(
        10,
        "non_blocking: drop experience from a policy older than this many updates; where several learners share a "
        "table, gradients from parameters older than this many gradient steps",
        min=0,
    )
    vector_env: bool = _setting(
        False, "the environment steps many lanes itself (gymnasium.vector)", fixed="its episodes were begun so"
    )
    ignore_obs: tuple[str, ...] | None = _setting(
        None,
        "fields of a Dict or Tuple observation that are left out, such as a text; of an inner one with all names, as "
        "a.b",
        form="names of observation fields, parted by commas or given one by one",
        adds=True,
        fixed=BY_NETWORKS,
    )
    env_timeout: float = _setting(60.0, "seconds that a step of one environment may take; then it is hung", min=1)
    bad_numbers: Literal["stop", "skip"] = _setting(
        "stop",
        "NaN or infinity in observations or rewards; stop: ends the run; skip: drops the rollout, counted, and resets "
        "the lane (non_blocking only)",
    )
    trace: bool = _setting(False, "keep what each node does when, for `penstock trace`; costs 1.5 MB a process")
    max_restarts: int = _setting(
        3,
        "restarts of a process without progress in between, after which a run ends; 0: the first death ends it",
        min=0,
    )
    stall_timeout: float = _setting(
        300.0, "seconds without progress, and without announced long work, after which a run ends", min=1
    )


@dataclass(frozen=True)
class Config:
    """A whole config. Made only of values that are in range and fit each other.

    Raises:
        ConfigError: one is not, or does not.
    """

    run: RunConfig
    algorithm: Any
    """The frozen config dataclass of the algorithm that ``run.algo`` names."""

    def __post_init__(self) -> None:
        for part in (self.run, self.algorithm):
            for setting in fields_of(type(part)):
                from_value(setting, getattr(part, setting.name), setting.name)
        _check_together(self.run)

    def values(self) -> dict[str, Any]:
        """Every setting by its name, in one namespace: the run's, then the algorithm's."""
        return {item.name: getattr(part, item.name) for part in (self.run, self.algorithm) for item in fields(part)}


def _check_together(run: RunConfig) -> None:
    """What no single setting can tell."""
    if run.num_workers != "auto":
        check_num_workers(run.num_workers, run.num_envs)
    if run.early_stop and not run.eval_interval:
        raise ConfigError("--early_stop counts evaluations, and there are none; give --eval_interval as well")
    if run.bad_numbers == "skip" and run.sync_mode == "blocking":
        raise ConfigError(
            "--bad_numbers skip needs --sync_mode non_blocking: in lock step an update waits for every lane's rollout"
        )
    if run.demonstrations is None and run.demonstration_share != RunConfig.demonstration_share:
        raise ConfigError(
            "--demonstration_share is a share of demonstrations, and there are none; give --demonstrations"
        )
    if run.learners > 1 and not RUNTIMES[run.runtime].processes:
        apart = " or ".join(name for name in RUNTIMES.names() if RUNTIMES[name].processes)
        raise ConfigError(f"--learners of more than 1 need --runtime {apart}: they wait for each other")
    if run.policy_nodes > 1 and run.policy_placement != "node":
        raise ConfigError("--policy_nodes needs --policy_placement node: else environment processes answer themselves")
    if run.num_workers != "auto" and run.policy_nodes > run.num_workers:
        raise ConfigError(f"--policy_nodes {run.policy_nodes} is more than the {run.num_workers} workers to answer")
