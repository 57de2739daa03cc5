"""The parts of a run. A resume may change how many processes it has, and how its learners agree.

Knows of each part only what its launch has recorded.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.config.fields import field_table
from penstock.config.schema import RunConfig
from penstock.config.values import from_value
from penstock.errors import ConfigError
from penstock.saved_runs.launches import SETTINGS, each_launch
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["Part", "parts_of", "parts_text"]


class Part(NamedTuple):
    """What a run has learned from one launch to the next."""

    begin: int
    """The steps that the run had learned from before."""
    run: RunConfig
    """Its last settings, with those of this part in place of `SETTINGS`."""


def parts_of(folder: RunFolder, run: RunConfig) -> tuple[Part, ...]:
    """The parts of a run in their order, at least one. What a later launch has done again is left out.

    A run whose launches have recorded no settings counts as one part. If only the first ones have not, the first part
    begins later than at 0.

    Args:
        folder: of the run.
        run: its last settings.

    Raises:
        RunFolderError: the launches cannot be read.
    """
    parts: list[Part] = []
    for launch in each_launch(folder):
        begin, settings = launch.get("steps"), _recorded(launch.get("settings"))
        if isinstance(begin, int) and settings is not None:
            parts = [part for part in parts if part.begin < begin]
            parts.append(Part(begin, replace(run, **settings)))
    return tuple(parts) or (Part(0, run),)


def _recorded(settings: object) -> dict[str, Any] | None:
    """The settings of a launch; ``None`` if it has recorded none, or none that a run can have."""
    if not isinstance(settings, dict):
        return None
    known = field_table(RunConfig)
    try:
        return {
            name: from_value(known[name], settings[name], name) if name in settings else known[name].default
            for name in SETTINGS
        }
    except ConfigError:
        return None


def parts_text(parts: Sequence[Part], text_of: Callable[[RunConfig], str], otherwise: str) -> str:
    """One text on all parts of a run: ``2 learners, gossip, to 40,000 steps; then 1 learner``.

    Neighbouring parts with the same text are joined. Steps before the first part are called ``unknown``. The result is
    empty if no part has a text.

    Args:
        parts: of the run.
        text_of: makes the text of one part, such as `penstock.config.agreement.learners_text`. It may be empty.
        otherwise: replaces an empty text if another part has one.
    """
    said: list[tuple[int, str]] = [(0, "unknown")] if parts[0].begin else []
    for part in parts:
        text = text_of(part.run)
        if not said or said[-1][1] != text:
            said.append((part.begin, text))
    texts = [text or otherwise for _, text in said]
    if not any(text_of(part.run) for part in parts) or len(said) == 1:
        return said[-1][1]
    ends = [f"{text}, to {end:,} steps" for text, (end, _) in zip(texts, said[1:], strict=False)]
    return "; ".join([*ends, f"then {texts[-1]}"])
