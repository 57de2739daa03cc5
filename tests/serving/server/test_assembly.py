"""What ``penstock serve`` makes before it serves, and ends if that fails."""

from pathlib import Path

import pytest

from penstock.config.commands import ServeOptions
from penstock.errors import ConfigError
from penstock.serving.server import assembly
from penstock.serving.server.assembly import Assembly
from penstock.serving.server.endpoints.endpoint import Endpoint
from tests.serving.server.harness import source_of


@pytest.mark.parametrize("place", ["taken", "/proc/kept"])
def test_a_folder_for_episodes_that_cannot_be_made_is_refused_before_a_policy_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    (tmp_path / "taken").write_text("no folder")

    async def first_endpoint(*_: object) -> None:
        raise AssertionError("a policy was loaded")

    monkeypatch.setattr(assembly, "first_endpoint", first_endpoint)
    folder = tmp_path / place
    with pytest.raises(ConfigError, match=f"--collect {folder}/toy cannot be written: "):
        Assembly(ServeOptions(policies=("toy",), collect=str(folder)), {"toy": source_of("plain")}, {}).run(print)


def test_a_folder_for_episodes_that_can_be_written_stays_empty(tmp_path: Path) -> None:
    folders = assembly._folders(ServeOptions(policies=("toy",), collect=str(tmp_path)), ["toy"])
    assert folders == {"toy": tmp_path / "toy"}
    assert not list((tmp_path / "toy").iterdir())


def test_what_fails_before_the_server_serves_leaves_no_engine_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    async def close(endpoint: Endpoint) -> None:
        closed.append(endpoint.name)

    def fail(*_: object) -> None:
        raise ConfigError("no server")

    monkeypatch.setattr(Endpoint, "close", close)
    monkeypatch.setattr(assembly, "Server", fail)
    with pytest.raises(ConfigError, match="no server"):
        Assembly(ServeOptions(policies=("toy",)), {"toy": source_of("plain")}, {}).run(print)
    assert closed == ["toy"]
