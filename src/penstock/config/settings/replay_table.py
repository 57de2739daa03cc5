"""Settings of the replay table that hold for every algorithm. Its capacity is a setting of the algorithm."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["ReplayTableConfig"]


@dataclass(frozen=True, kw_only=True)
class ReplayTableConfig(SettingsGroup):
    """The size and place of the replay table, and demonstrations that a run learns from besides."""

    title: ClassVar[str] = "Replay table, demonstrations"

    table_bytes: int | None = setting(
        None,
        "largest size of the replay table in bytes, such as 4e9; it keeps as many of its --capacity rows as fit",
        min=1,
    )
    table_on: Literal["launcher", "learners"] = setting(
        "launcher",
        "where the rows of the replay table lie on several machines; launcher: all on the launcher's machine, with a "
        "copy of its shard for each other learner; learners: those of a shard only with its learner, so that the "
        "launcher's machine does not have to hold all; then a lost machine takes its rows with it, and only a run that "
        "ends in order keeps them for a resume",
    )
    demonstrations: tuple[str, ...] | None = setting(
        None,
        "run folder of another run, or a folder of kept episodes; this run also learns from the replay table of the "
        "other run's latest checkpoint, or from the episodes; for several, repeat the flag",
        pattern=r"(?s).*\S.*",
        form="run folders or folders of episodes, separated by commas or with a flag each",
        adds=True,
        alone=True,
    )
    demonstration_share: tuple[float, ...] = setting(
        (0.25,),
        "share of each minibatch that comes from the --demonstrations; one number is for all together, and each gets "
        "an equal part of it; or one number for each, in their order, at most 1 together",
        min=0,
        max=1,
        adds=True,
        alone=True,
    )
