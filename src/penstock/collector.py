"""ParallelEnvironmentCollector: experience from parallel environments, for a learner of the user's own.

Runs the environment nodes of training, in lock step. This process takes the place of the learner. It learns nothing.
"""

import contextlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from penstock.algorithm.first_state import first_state
from penstock.config.schema import RunConfig
from penstock.config.sources import from_mapping
from penstock.config.values import count_of
from penstock.config.workers import largest_divisor
from penstock.envs.fields import one_line
from penstock.envs.given import named
from penstock.errors import ConfigError, NodeError, PenstockError, ResourceError
from penstock.memory.segment import Segment
from penstock.planning import Prepared, plan, prepare
from penstock.processes.interrupts import Interrupts
from penstock.processes.starts import Processes
from penstock.processes.supervised import START_LIMIT_S
from penstock.processes.worker import WorkerSpec
from penstock.supervision.lives import describe
from penstock.supervision.signs import SharedSigns
from penstock.topologies.on_policy import build
from penstock.types import Array, Arrays, ArraySpec, Cause, EnvFactory
from penstock.wiring.edges import Wiring, placement
from penstock.wiring.ports import NodePorts

__all__ = ["ParallelEnvironmentCollector"]

DEFAULT_WORKERS = 8
"""Environment processes if the caller gives no number. There are fewer where 8 does not divide the environments."""
TICK_S = 0.05
LEARNER = "learner"
"""This process takes the place of this node."""


class ParallelEnvironmentCollector:
    """Steps environments in processes of their own with a stochastic policy.

    Args:
        env_fn: a Gymnasium id, ``module:name``, or a callable that makes an environment.
        num_workers: environment processes; they split ``num_envs`` evenly. Default: 8, or the largest number below 8
            that divides the number of environments.
        num_envs: number of lanes: copies of the environment. Default: one for each process. Where an environment has
            several agents, each is a lane.
        rollout_steps: steps of each lane in one rollout.
        settings: settings of ``penstock train`` by their names (``seed``, ``hidden_sizes``, ``env_timeout``, ...), but
            none of a cluster or of several learners. ``algo`` is one that learns from a stream of rollouts.

    Raises:
        UsageError: the environment, its spaces or a setting cannot be used.

    Example:
        with penstock.ParallelEnvironmentCollector("CartPole-v1", num_envs=16) as collector:
            rows = collector.collect(128)  # rows["obs"]: [128, 16, 4]
            collector.publish(collector.published)  # parameters that your learner has changed
    """

    def __init__(
        self,
        env_fn: str | EnvFactory,
        num_workers: int | None = None,
        *,
        num_envs: int | None = None,
        rollout_steps: int = 32,
        **settings: Any,  # noqa: ANN401 - a setting has its own type
    ) -> None:
        for name, parameter in (("env", "env_fn"), ("num_steps", "rollout_steps")):
            if name in settings:
                raise ConfigError(f"a collector takes {name} as {parameter}; leave {name} out")
        if num_envs is None:
            num_envs = DEFAULT_WORKERS if num_workers is None else num_workers
        own = {"env": env_fn, "num_envs": num_envs, "num_steps": rollout_steps}
        if num_workers is not None:
            own["num_workers"] = num_workers
        values, given = named({**settings, **own})
        config = from_mapping(values)
        _check(config.run)
        config = replace(config, run=replace(config.run, policy_placement="env"))
        with Processes() as processes:
            self._prepared = prepare(config, processes, given)
        if num_workers is None:
            self._prepared = _with_default_workers(self._prepared)
        run = self._prepared.config.run
        if self._prepared.profile.kind == "game":
            raise ConfigError(f"a collector steps its environments, and {run.env} is a game that connects to a run")
        if self._prepared.spec.table is not None:
            raise ConfigError(
                f"a collector cannot take algo {run.algo}, which learns from a table; give one that learns from "
                "a stream of rollouts, such as impala, or leave algo out for ppo"
            )
        self._program = build(plan(self._prepared, Path(), quiet=True))
        algorithm, spec = self._prepared.algorithm, self._prepared.spec
        state = first_state(algorithm.initial, spec, self._prepared.profile.spaces, config.algorithm, config.run.seed)
        self._initial: Arrays = {part.name: state[part.name] for part in spec.published()}
        self._published = self._initial
        self._processes: Processes | None = None
        self._left: list[Arrays] = []
        self._version = -1
        self._under_way: list[int] | None = None
        """Slots taken so far for the next rollout; ``None``: it has not begun. After an interrupt, `collect` goes on
        with them."""

    def start(self) -> None:
        """Start the environment processes with new episodes. Until ``publish`` the algorithm's initial policy acts."""
        if self._processes is not None:
            return
        self._left, self._version, self._published, self._under_way = [], -1, self._initial, None
        program = self._program
        self._wiring = Wiring(program.edges, [(node.name, node.group) for node in program.nodes])
        self._segment = Segment.create(self._wiring.nbytes, "collector")
        self._wiring.attach(self._segment.bytes)
        self._signs = SharedSigns(self._wiring, program)
        self._processes = Processes()
        lives = {node.name: number for number, node in enumerate(program.nodes, start=1)}
        ports = NodePorts(self._wiring, LEARNER, LEARNER, lives[LEARNER])
        self._rollouts, self._policy = ports.stream_reader("rollouts"), ports.board_writer("policy")
        try:
            for node in program.nodes:
                if node.kind == "env":
                    own = {node.name: lives[node.name]}
                    spec = WorkerSpec(placement(program, node.group), own, {node.name: ()})
                    self._signs.expect(node.group, START_LIMIT_S)
                    self._processes.start(self._segment, spec, node.threads, node.imports)
        except BaseException:
            self.stop()
            raise

    @property
    def published(self) -> Arrays:
        """Copies of the parameters and statistics that act from the next rollout on: name -> array.

        Until ``publish`` they are those of the algorithm's initial policy. ``publish`` takes the same names and shapes.
        """
        return {name: values.copy() for name, values in self._published.items()}

    def publish(self, published: Mapping[str, Array]) -> None:
        """From the next rollout on, act with these parameters and statistics.

        Args:
            published: name -> array, with the names and shapes of the property ``published``. The arrays are copied.

        Raises:
            ConfigError: a name is missing or unknown, a shape is wrong, or a number is infinite or NaN. The policy
                stays as it was.
            PenstockError: the collector is not running.
        """
        self._running()
        if not isinstance(published, Mapping):
            raise ConfigError(f"publish takes a mapping of names to arrays, not {one_line(repr(published))}")
        specs = self._prepared.spec.published()
        if published.keys() != {spec.name for spec in specs}:
            raise ConfigError(
                f"publish takes {', '.join(spec.name for spec in specs)}, and was given "
                f"{', '.join(map(str, published)) or 'nothing'}"
            )
        self._published = {spec.name: _copied(published[spec.name], spec) for spec in specs}

    def collect(self, num_steps: int) -> Arrays:
        """The next steps of every lane.

        Args:
            num_steps: steps of each lane, at least 1.

        Returns:
            ``[num_steps, num_envs, ...]`` each: the observation fields, ``next_<field>`` for each of them, ``action``
            in the policy's units, ``reward``, ``terminated``, ``truncated``, ``valid``, ``log_prob``, ``value`` and
            ``policy_version``; for a policy with memory also ``first``, true where an episode begins.
            ``next_<field>`` of a truncated row is the last observation of its episode; of a terminated row it is the
            first observation of the next episode, or the last one of its own if the environment resets in the step
            after.

        Raises:
            ConfigError: ``num_steps`` is no whole number of at least 1.
            PenstockError: the collector is not running.
            NodeError: an environment process failed; with its traceback.
            ResourceError: the system refused an environment process.
        """
        num_steps = count_of(num_steps, "num_steps of collect")
        processes = self._running()
        while sum(len(part["reward"]) for part in self._left) < num_steps:
            self._add_rollout(processes)
        joined = {name: np.concatenate([part[name] for part in self._left]) for name in self._left[0]}
        self._left = [{name: values[num_steps:] for name, values in joined.items()}]
        return {name: values[:num_steps] for name, values in joined.items()}

    def stop(self) -> None:
        """End the processes and free the shared memory. May be called twice."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None
            self._segment.close()

    def __enter__(self) -> "ParallelEnvironmentCollector":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> Processes:
        """The environment processes.

        Raises:
            PenstockError: ``start`` was not called, or ``stop`` was.
        """
        if self._processes is None:
            raise PenstockError("the collector is not running; call start first")
        return self._processes

    def _add_rollout(self, processes: Processes) -> None:
        """Copy one rollout of every lane out of the stream, and keep it: ``[rollout_steps, num_envs, ...]``."""
        if self._under_way is None:
            with _interrupted_later():
                self._version += 1
                self._policy.publish(self._published, self._version)
                self._under_way = []
        taken = self._under_way
        while len(taken) < len(processes.running()):
            seen = self._wiring.bells.word(self._wiring.bell_of(LEARNER))
            with _interrupted_later():
                index = self._rollouts.take()
                if index is not None:
                    taken.append(index)
            if index is None:
                self._watch(processes)
                self._wiring.bells.wait(self._wiring.bell_of(LEARNER), seen, TICK_S)
        slots = sorted((self._rollouts.slot(index) for index in taken), key=lambda slot: int(slot["first_lane"]))
        if len({int(slot["first_lane"]) for slot in slots}) < len(slots):
            raise PenstockError("an environment process gave two rollouts of one version; stop the collector")
        lanes = [self._rows(slot) for slot in slots]
        joined = {name: np.concatenate([part[name] for part in lanes], axis=1) for name in lanes[0]}
        with _interrupted_later():
            self._left.append(joined)
            self._under_way = None
            for index in taken:
                self._rollouts.release(index)

    def _rows(self, slot: Arrays) -> Arrays:
        """The rows of one slot without the bootstrap row, each with the observation that followed it."""
        spec, fields = self._prepared.spec, [name for name, _ in self._prepared.profile.spaces.obs]
        names = (*fields, "action", "reward", "terminated", "truncated", "valid", "policy_version")
        names = (*names, *(("first",) if spec.policy.carry else ()))
        rows = {name: slot[name][:-1] for name in (*names, *(row.name for row in spec.row))}
        count = int(slot["final_count"])
        ends = slot["final_t"][:count], slot["final_lane"][:count]
        for name in fields:
            rows[f"next_{name}"] = slot[name][1:].copy()
            if count:
                rows[f"next_{name}"][ends] = slot[f"final.{name}"][:count]
        return rows

    def _watch(self, processes: Processes) -> None:
        """Raise NodeError if an environment process has ended or hangs, ResourceError if the system refused it."""
        for ended in processes.exits():
            self.stop()
            if ended.cause is Cause.REFUSED:
                raise ResourceError(ended.detail)
            raise NodeError(ended.group, ended.detail or describe(ended))
        silence = self._signs.silent(processes.running())
        if silence is not None:
            stacks = processes.stacks([silence.group])[silence.group]
            self.stop()
            raise NodeError(silence.node, f"{silence.text()}\n{stacks}")


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Hold signals back until the end of the ``with`` block. In between, an interrupt would lose a slot or its rows.

    The handlers of the caller's program get them then.
    """
    held = Interrupts()
    try:
        with held:
            yield
    finally:
        for number in dict.fromkeys(held.taken):
            signal.raise_signal(number)


def _with_default_workers(prepared: Prepared) -> Prepared:
    """The same with `DEFAULT_WORKERS` processes, or the largest number below it that gives each whole environments."""
    run = prepared.config.run
    workers = largest_divisor(run.num_envs // prepared.profile.agents, DEFAULT_WORKERS)
    return replace(prepared, config=replace(prepared.config, run=replace(run, num_workers=workers)))


def _check(run: RunConfig) -> None:
    """Check that no setting asks for something that a collector does not have.

    Raises:
        ConfigError: one does.
    """
    refused = (
        ("policy_placement", run.policy_placement == "node", "its environment processes run the policy themselves"),
        ("opponents", run.opponents, "opponents are those of a run"),
        ("begin_with", run.begin_with, "publish gives it the policy to begin with"),
        ("trace", run.trace, "it has no run folder to keep a trace in"),
        ("distributed", run.distributed, "its environment processes are on this machine"),
        ("runtime", run.runtime != RunConfig.runtime, "its environment processes are on this machine"),
        ("learners", run.learners != RunConfig.learners, "it hands all rows to one learner, the caller"),
        ("sync_mode", run.sync_mode == "non_blocking", "collecting and learning always take turns"),
    )
    for name, asked, why in refused:
        if asked:
            raise ConfigError(f"a collector cannot take {name}={getattr(run, name)}: {why}; leave {name} out")


def _copied(given: Array, spec: ArraySpec) -> Array:
    """A copy of an array that a learner publishes, with the dtype of the spec.

    Raises:
        ConfigError: it is no array of numbers, has another shape, or holds infinity or NaN.
    """
    try:
        with np.errstate(over="ignore"):  # a number too large for the dtype becomes infinite, which is refused below
            values = np.array(given, spec.dtype)
    except (TypeError, ValueError, RuntimeError) as error:  # torch raises RuntimeError for a tensor with a gradient
        raise ConfigError(f"publish: {spec.name} is no array of numbers: {one_line(str(error))}") from error
    if values.shape != spec.shape:
        raise ConfigError(f"publish: {spec.name} has shape {values.shape}; give an array of shape {spec.shape}")
    if not np.isfinite(values).all():
        raise ConfigError(f"publish: {spec.name} holds infinity or NaN; give finite numbers")
    return values
