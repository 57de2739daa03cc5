"""A learner that learns nothing: it frees each rollout at once, and counts how fast they come.

It takes the place of the `LearnerNode` of a real program, so that nothing but acting and stepping is measured.
"""

import time
from dataclasses import dataclass, replace

from penstock.nodes.contract import Ports
from penstock.nodes.learner import KeeperSettings, LearnerSettings
from penstock.program.graph import Program
from penstock.registry import load

__all__ = ["Sink", "SinkSettings", "without_learning"]


@dataclass(frozen=True)
class SinkSettings:
    """How long to count."""

    keeper: KeeperSettings
    warm_up: int
    """Rollouts that come before the counting begins."""
    seconds: float


class Sink:
    """Publishes the first parameters. Its record holds the rows that came (``steps``) in ``elapsed_s`` seconds."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._left = settings.warm_up
        self._steps = 0
        self._begun = 0.0
        self._done = False

    def open(self, ports: Ports) -> None:
        """Publish."""
        self._ports = ports
        self._rollouts = ports.stream_reader("rollouts")
        self._record = ports.record("learner")
        keeper = self._settings.keeper
        state = load(keeper.initial)(keeper.spaces, keeper.algorithm_config, keeper.run.seed)
        ports.board_writer("policy").publish({part.name: state[part.name] for part in keeper.spec.published()}, 0)

    def ready(self) -> bool:
        """True if a rollout waits."""
        return not self._done and self._rollouts.ready() > 0

    def step(self) -> None:
        """Count a rollout and free it."""
        index = self._rollouts.take()
        if index is None:
            return
        rows = int(self._rollouts.slot(index)["valid"][:-1].sum())
        self._rollouts.release(index)
        now = time.perf_counter()
        if self._left > 0:
            self._left -= 1
            self._begun = now
            return
        self._steps += rows
        if now - self._begun >= self._settings.seconds:
            self._end(now - self._begun)

    def close(self) -> None:
        """Nothing is held beyond memory."""

    def _end(self, elapsed_s: float) -> None:
        record = self._record.begin()
        for values in record.values():
            values[...] = 0
        record["steps"][...], record["elapsed_s"][...] = self._steps, elapsed_s
        self._record.commit(1)
        self._done = True
        self._ports.finished()


def without_learning(program: Program, warm_up: int, seconds: float) -> Program:
    """The program with a `Sink` in the place of its learner."""
    learner = program.node("learner")
    if not isinstance(learner.settings, LearnerSettings):
        raise TypeError("the learner does not learn from a stream")
    settings = SinkSettings(learner.settings.keeper, warm_up, seconds)
    return program.with_node(replace(learner, kind=f"{__name__}:Sink", settings=settings, imports=(), minibatch=None))
