"""The first version of a policy whose run trains on, and removes its checkpoints meanwhile."""

import asyncio
from typing import Any

import pytest

from penstock.errors import CheckpointError
from penstock.serving.server import assembly
from penstock.serving.server.assembly import Origin, first_endpoint
from penstock.serving.server.policy.source import Source


def opened(monkeypatch: pytest.MonkeyPatch, there: int, newest: list[int], *, is_newest: bool = True) -> list[int]:
    """Versions that were tried, until ``there`` could be opened. ``newest`` are those of the run, time after time."""
    tried: list[int] = []

    async def open_endpoint(name: str, source: Source, limits: Any, start: Any) -> None:
        tried.append(source.version)
        if source.version != there:
            raise CheckpointError(f"no checkpoint {source.version}")

    monkeypatch.setattr(assembly, "open_endpoint", open_endpoint)
    sources = (Source("loader", "run", f"update-{update:08d}", update) for update in newest)
    origin = Origin(next(sources), lambda: next(sources), is_newest)
    asyncio.run(first_endpoint("policy", origin, None, None))  # type: ignore[arg-type]  # the double takes anything
    return tried


def test_a_checkpoint_that_is_removed_while_it_is_loaded_gives_way_to_the_newest(monkeypatch) -> None:
    assert opened(monkeypatch, 9, [3, 6, 9]) == [3, 6, 9]


def test_one_that_cannot_be_used_and_is_the_newest_is_an_error(monkeypatch) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint 6"):
        opened(monkeypatch, 9, [3, 6, 6])


def test_one_that_was_asked_for_by_name_is_an_error(monkeypatch) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint 3"):
        opened(monkeypatch, 9, [3, 9], is_newest=False)


def test_it_does_not_run_behind_a_run_for_ever(monkeypatch) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint 11"):
        opened(monkeypatch, 99, list(range(1, 30)))
