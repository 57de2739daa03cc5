"""Settings of how much experience a run collects, and how it does that. Says nothing about what the experience is."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.fields import AUTO
from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["CollectionConfig"]


@dataclass(frozen=True, kw_only=True)
class CollectionConfig(SettingsGroup):
    """How experience is collected: in how many lanes and processes, for how long, and whether learning waits for it."""

    title: ClassVar[str] = "Lanes, processes, length"

    num_envs: int = setting(
        8,
        "number of environments that are stepped side by side (lanes); of an environment with several agents each is a "
        "lane; left out: the least multiple of --num_workers that is at least 8",
        min=1,
        max=1_000_000,
        fixed="its checkpoints hold the state of each lane",
    )
    num_workers: int | Literal["auto"] = setting(
        "auto",
        "number of environment processes; auto: one for each core, but with non_blocking 2 cores fewer if there are "
        "more than 2; on several machines four fifths of all their cores, divided by the cpu that --resources asks for",
        min=1,
    )
    timesteps: int = setting(
        1_000_000,
        "environment steps of the run, of all lanes together; steps that are dropped do not count",
        min=1,
    )
    sync_mode: str = setting(
        AUTO,
        "blocking: collection and learning take turns (lock step), repeatable bit for bit; non_blocking: they overlap; "
        "auto: non_blocking for impala, appo, r2d2 and a3c, for games that connect, and where several learners do not "
        "wait for each other (--exchange, --pace); else blocking",
        choices=(AUTO, "blocking", "non_blocking"),
        fixed="its checkpoints hold the lanes as this mode left them",
    )
