"""Settings of games that drive their own environment and connect to a run. Listens at no port."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["HTTP_PORT", "GamesConfig"]

HTTP_PORT = 8000
"""Where clients of a policy, and games, connect over HTTP if the user names no port."""


@dataclass(frozen=True, kw_only=True)
class GamesConfig(SettingsGroup):
    """Where games connect, which of them are accepted, and what a run keeps of their episodes."""

    title: ClassVar[str] = "Games that connect"

    host: str = setting(
        "127.0.0.1",
        "games: address to listen at; one that other machines can reach needs --token_file",
        form="an address",
    )
    port: int | None = setting(None, f"games: port for HTTP; {HTTP_PORT} if neither port is given", min=1, max=65535)
    tcp_port: int | None = setting(None, "games: port for TCP", min=1, max=65535)
    token_file: str | None = setting(
        None, "games: file with the accepted tokens, one a line; left out: every client is accepted", form="a file"
    )
    idle_seconds: float = setting(
        60.0,
        "games: seconds without a request after which a session has vanished, and its episode ends as truncated",
        min=1,
    )
    keep_episodes: int = setting(
        0, "games: number of latest episodes to keep as files in the run's folder episodes; 0: none", min=0
    )
