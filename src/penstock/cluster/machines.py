"""The machines of a cluster that have a host of this run, and calls to these hosts."""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.cluster.host import Host
from penstock.cluster.listing import Listed, others
from penstock.cluster.messages import Facts
from penstock.cluster.ray_errors import NO_ROOM
from penstock.program.graph import Program

__all__ = ["END_LIMIT_S", "Machine", "answers", "end_all", "machines", "stacks_on"]

END_LIMIT_S = 5.0
STACKS_LIMIT_S = 5.0
ANSWERS_LOOK_S = 0.5


@functools.cache
def _hosts() -> Any:  # noqa: ANN401 - Ray's own type
    """`Host` as a class of Ray's actors. One for all machines: Ray never lets go of such a class."""
    return ray.remote(Host)


class Machine(Listed):
    """A machine of the cluster with a host of this run.

    Attributes:
        actor: the host, for calls of other hosts.
    """

    def __init__(self, node: dict[str, Any], program: Program) -> None:
        super().__init__(node)
        where = NodeAffinitySchedulingStrategy(self.id, soft=False)
        # 1. No cores are asked for: Ray would let the host wait where another program has reserved them.
        # 2. No events: Ray's head would keep an entry for each call of a host, 100,000 of them.
        options = {"num_cpus": 0, "enable_task_events": False, "scheduling_strategy": where}
        self.actor = _hosts().options(**options).remote(program, list(sys.path))

    def call(self, name: str, replied: Callable[[Any, BaseException | None], None], *arguments: Any) -> None:  # noqa: ANN401
        """Call a method of the host. ``replied`` is called with its result or its error, in another thread.

        If the object store of this machine has no room for the arguments, it is called at once, with one of `NO_ROOM`.
        """

        def done(future: Any) -> None:  # noqa: ANN401
            error = future.exception()
            replied(None if error is not None else future.result(), error)

        try:
            answer = getattr(self.actor, name).remote(*arguments)
        except NO_ROOM as error:
            replied(None, error)
            return
        answer.future().add_done_callback(done)

    def facts(self) -> Facts:
        """Facts of the machine. Waits for its host to start.

        Raises:
            ConfigError: the host does not start.
        """
        return self.told(self.actor.facts.remote())

    def stacks(self, groups: Sequence[str]) -> ray.ObjectRef:
        """Ask for the stacks of processes there."""
        return self.actor.stacks.remote(groups)

    def ask(self, name: str, *arguments: Any) -> ray.ObjectRef:  # noqa: ANN401
        """Ask for the result of a method of the host. `answers` waits for several of them."""
        return getattr(self.actor, name).remote(*arguments)

    def closing(self) -> ray.ObjectRef:
        """Let the processes of the host end, each after it has closed its environments. Ready once all have ended."""
        return self.actor.end.remote()

    def end(self) -> None:
        """End the host with all its processes at once."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self.actor)


def machines(program: Program, known: set[str]) -> list[Machine]:
    """Machines of the cluster that could run a part of the program and are not known yet. Starts a host on each."""
    return [Machine(node, program) for node in others(program, known)]


def stacks_on(asked: Mapping[Machine, Mapping[str, str]]) -> dict[str, str]:
    """Group -> the stacks of its process. All machines are asked at once; a note for one that does not answer.

    Args:
        asked: machine -> the groups that it runs: name there -> name at home.
    """
    found = {group: f"{machine.name} does not answer" for machine, groups in asked.items() for group in groups.values()}
    with contextlib.suppress(ray.exceptions.RayError):
        if questions := {machine.stacks(list(groups)): groups for machine, groups in asked.items()}:
            ready, _ = ray.wait(list(questions), num_returns=len(questions), timeout=STACKS_LIMIT_S)
            for answer in ready:
                # Of a machine that was lost meanwhile.
                with contextlib.suppress(ray.exceptions.RayError):
                    found |= {questions[answer][there]: text for there, text in ray.get(answer).items()}
    return found


def answers(
    asked: Mapping[int, ray.ObjectRef], limit_s: float, over: Callable[[], bool] = lambda: False
) -> dict[int, Any]:
    """What was answered to each question. Questions that failed, or take longer than ``limit_s`` seconds, are left out.

    Args:
        asked: questions, which all are answered at the same time.
        limit_s: for all together.
        over: looked at twice a second. Once it is true, nothing more is waited for.
    """
    found: dict[int, Any] = {}
    left, until = list(asked.values()), time.monotonic() + limit_s
    with contextlib.suppress(ray.exceptions.RayError):
        while left and not over() and (rest := until - time.monotonic()) > 0:
            _, left = ray.wait(left, num_returns=len(left), timeout=min(ANSWERS_LOOK_S, rest))
        for number, answer in asked.items():
            if answer not in left:
                # Of a machine that was lost meanwhile.
                with contextlib.suppress(ray.exceptions.RayError):
                    found[number] = ray.get(answer)
    return found


def end_all(machines: Sequence[Machine]) -> None:
    """End these hosts together. Their processes have some seconds to close their environments."""
    with contextlib.suppress(ray.exceptions.RayError):
        if closing := [machine.closing() for machine in machines]:
            ray.wait(closing, num_returns=len(closing), timeout=END_LIMIT_S)
    for machine in machines:
        machine.end()
