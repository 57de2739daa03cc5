"""Whether gradient steps go together with the sync mode and with the learners that take them. Settles nothing.

None of it depends on the number of environment processes, so it is refused before a cluster is joined to count its
cores.
"""

from penstock.algorithm import AlgorithmSpec
from penstock.config.agreement import agreement
from penstock.config.schema import RunConfig
from penstock.errors import ConfigError
from penstock.registry import TOPOLOGIES

__all__ = ["check_gradient_steps", "check_sync_mode"]


def check_sync_mode(run: RunConfig, spec: AlgorithmSpec) -> None:
    """Check that the algorithm has a topology for the ``sync_mode``, which is settled.

    Raises:
        ConfigError: it has none.
    """
    modes = TOPOLOGIES[spec.topology].modes
    if run.sync_mode not in modes:
        others = " or ".join(modes)
        raise ConfigError(f"--algo {run.algo} does not run with --sync_mode {run.sync_mode}; give --sync_mode {others}")


def check_gradient_steps(run: RunConfig, spec: AlgorithmSpec) -> None:
    """Check that the learners can take the gradient steps that the settings ask for.

    Args:
        run: settings of the run, whose ``sync_mode`` is settled.
        spec: of its algorithm.

    Raises:
        ConfigError: a minibatch cannot be split evenly; or ``reuse`` is set in lock step; or ``reset_every`` or
            ``normalize_obs`` is set, and learners of a table do not wait for each other.
    """
    if TOPOLOGIES[spec.topology].learns_in_envs:
        # Each learner takes the gradient of its own rollout, in as many parts as that needs.
        return
    apart = agreement(run, from_table=spec.table is not None).apart
    _check_minibatch(run, spec, sharing=1 if apart else run.learners)
    if spec.table is not None:
        _check_replay(run, spec, apart=apart)


def _check_minibatch(run: RunConfig, spec: AlgorithmSpec, sharing: int) -> None:
    """Check that ``sharing`` learners take equal parts of a minibatch, each in ``accumulate`` equal parts."""
    size, count = spec.schedule.mini_batch_size, sharing * run.accumulate
    if size % count == 0:
        return
    sharers = [f"{sharing} learners"] * (sharing > 1) + [f"{run.accumulate} parts"] * (run.accumulate > 1)
    if spec.unit == "lane":
        what, steps = ("whole lanes", "num_steps") if spec.table is None else ("sequences", "learned_steps")
        raise ConfigError(
            f"a minibatch of {size} {what} cannot be split evenly over {' of '.join(sharers)}: "
            f"--mini_batch_size / --{steps} are their number, which must be a multiple of {count}"
        )
    raise ConfigError(
        f"--mini_batch_size {size} cannot be split evenly over {' of '.join(sharers)}; give a multiple of {count}"
    )


def _check_replay(run: RunConfig, spec: AlgorithmSpec, *, apart: bool) -> None:
    """Check settings of learning from a table. ``apart``: no learner waits for another one."""
    schedule, _ = spec.replay()
    if schedule.reuse != 1.0 and run.sync_mode == "blocking":
        # It adds gradient steps while rows are slow to come.
        raise ConfigError(
            f"--reuse {schedule.reuse:g} needs --sync_mode non_blocking: in lock step every turn brings new rows"
        )
    asked = {"reset_every": schedule.reset_every, "normalize_obs": spec.policy.normalize_obs}
    for name in (name for name, value in asked.items() if apart and value):
        raise ConfigError(
            f"--{name} {asked[name]} needs learners that take each step together: with --learners {run.learners} give "
            "--exchange allreduce"
        )
