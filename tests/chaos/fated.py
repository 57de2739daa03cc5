"""Nodes whose first life ends at an exact place; ``FATE`` says where. Their processes need the build with fault points.

``FATE`` is what ``PENSTOCK_FAULT`` takes, or, for the checkpointer, the name of a function of ``os`` and which of its
calls is the last.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

from penstock.nodes.checkpointer import CheckpointerNode
from penstock.nodes.env import EnvNode
from penstock.nodes.evaluation import EvaluatorNode
from penstock.nodes.learner import LearnerNode
from penstock.nodes.monitor import MonitorNode
from penstock.nodes.policy_node import PolicyNode

FATE = "FATE"


class _Fated:
    def open(self, ports: Any) -> None:
        if not ports.former:
            os.environ["PENSTOCK_FAULT"] = os.environ[FATE]
        super().open(ports)  # type: ignore[misc]


class FatedEnv(_Fated, EnvNode):
    pass


class FatedLearner(_Fated, LearnerNode):
    pass


class FatedMonitor(_Fated, MonitorNode):
    pass


class FatedEvaluator(_Fated, EvaluatorNode):
    pass


class FatedPolicy(_Fated, PolicyNode):
    pass


class FatedCheckpointer(CheckpointerNode):
    """Dies in the middle of writing a checkpoint, before or after one of the system's calls."""

    def open(self, ports: Any) -> None:
        super().open(ports)
        if not ports.former:
            name, moment, count = os.environ[FATE].split(":")
            setattr(os, name, _last(getattr(os, name), moment, int(count)))


def _last(function: Callable[..., Any], moment: str, count: int) -> Callable[..., Any]:
    calls = [0]

    def call(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if (moment, calls[0]) == ("before", count):
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **named)
        if (moment, calls[0]) == ("after", count):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call
