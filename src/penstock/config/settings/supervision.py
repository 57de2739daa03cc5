"""Settings of how the processes of a run are watched. Watches none."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["SupervisionConfig"]


@dataclass(frozen=True, kw_only=True)
class SupervisionConfig(SettingsGroup):
    """What nodes note about their work, how often a process is restarted, and when a run counts as hung."""

    title: ClassVar[str] = "Trace, restarts, hangs"

    trace: bool = setting(
        False, "record when each node works and on what, for `penstock trace`; costs 1.5 MB a process"
    )
    max_restarts: int = setting(
        3,
        "how often a process is restarted without progress in between; the next death ends the run; 0: the first death "
        "ends it",
        min=0,
    )
    stall_timeout: float = setting(
        300.0,
        "seconds without progress after which a run ends; work that a node announces as long does not count",
        min=1,
    )
