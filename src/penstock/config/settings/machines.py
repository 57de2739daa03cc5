"""Settings of the machines that a run uses. Joins no cluster."""

from dataclasses import dataclass, field
from typing import ClassVar

from penstock.config.fields import Demands
from penstock.config.settings.group import SettingsGroup, setting
from penstock.registry import RUNTIMES, texts_of

__all__ = ["MachinesConfig"]


@dataclass(frozen=True, kw_only=True)
class MachinesConfig(SettingsGroup):
    """The runtime, and what a run asks of a Ray cluster."""

    title: ClassVar[str] = "Machines"

    runtime: str = setting("local", texts_of(RUNTIMES), choices=RUNTIMES.names())
    distributed: bool = setting(False, "use all machines of a Ray cluster: the same as --runtime ray")
    address: str | None = setting(
        None,
        "the Ray cluster: auto (the one that this machine belongs to), the host:port of its head, or local (a new one "
        "on this machine); left out: auto if there is one, else local",
        pattern=r"\S+",
        form="auto, local or host:port",
    )
    resources: Demands | None = field(
        default=None,
        metadata={
            "help": "what each environment process (env), learner and policy node (policy) asks the Ray cluster for: "
            "cpu, gpu, memory in bytes, or resources by your own names. They run on machines that have it, and Ray "
            "keeps it for them; left out: they ask for nothing, and environment processes are shared out by cores",
            "form": 'resources such as "env: {cpu: 1}, learner: {gpu: 1}"',
        },
    )
    min_workers: int | None = setting(
        None,
        "environment processes that must have room for what they ask for (--resources) before the run begins, besides "
        "all learners; it waits 10 minutes for that, and asks Ray's autoscaler for room for all. Until machines come, "
        "the others share what is there; left out: all must have room",
        min=1,
    )
