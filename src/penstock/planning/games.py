"""What a run settles, or refuses, if its environments are games that connect to it. Starts nothing."""

import importlib.util
from dataclasses import replace
from pathlib import Path

from penstock.clients.wire import bracketed
from penstock.config.fields import AUTO
from penstock.config.schema import RunConfig
from penstock.config.settings.games import HTTP_PORT
from penstock.config.whole import Config
from penstock.envs.sources import EnvProfile
from penstock.errors import ConfigError
from penstock.games.settings import PORT_FLAGS, GamesSettings
from penstock.paths import expanded
from penstock.registry import TOPOLOGIES
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.server.admission.tokens import Tokens
from penstock.serving.server.command import is_loopback
from penstock.serving.server.connections.listening import check_free
from penstock.types import EnvReference

__all__ = ["check_ports", "game_settings", "with_games"]

_OWN = ("host", "port", "tcp_port", "token_file", "keep_episodes", "idle_seconds")
"""Settings for games only."""
_PACKAGES = ("httptools", "orjson", "prometheus_client", "uvloop")
_PATIENCE = 0.9
"""Share of ``--stall_timeout`` after which `GamesNode` itself ends the run and says why: no game has asked, or no
tick has fitted. The supervisor's report of the stall would come later and say less."""


def with_games(config: Config, profile: EnvProfile, topology: str) -> tuple[Config, tuple[str, ...]]:
    """The config of a run whose environments are games, and lines for its display. Any other config is unchanged.

    Raises:
        ConfigError: a setting does not fit games, or is for games only.
    """
    run = config.run
    if profile.kind != "game":
        for name in _OWN:
            if getattr(run, name) != getattr(RunConfig, name):
                raise ConfigError(f"--{name} is for games that connect to the run: --env gamecore://module:Agent")
        return config, ()
    _check(run, profile.name, topology)
    if run.port is None and run.tcp_port is None:
        run = replace(run, port=HTTP_PORT)
    told = [f"games connect to {where(run)}; at most {run.num_envs} sessions (--num_envs)"]
    if run.eval_episodes:
        told.append("no evaluation at the end: games cannot be asked for episodes (--eval_episodes 0)")
    decided = replace(run, sync_mode="non_blocking", num_workers=run.num_envs, eval_episodes=0)
    return replace(config, run=decided), tuple(told)


def where(run: RunConfig) -> str:
    """The addresses that games connect to."""
    return " and ".join(f"{name}://{bracketed(run.host)}:{port}" for name, port in _ports(run).items())


def check_ports(run: RunConfig) -> None:
    """Check that games can connect to this machine. Of a run without games nothing is checked.

    Raises:
        ConfigError: the file of tokens cannot be read, or holds none.
        ResourceError: a port cannot be listened on.
    """
    Tokens.read(run.token_file, "--token_file")
    for scheme, port in _ports(run).items():
        check_free(run.host, port, f"give another {PORT_FLAGS[scheme]}")


def _ports(run: RunConfig) -> dict[str, int]:
    """Scheme -> port, of those that games connect to."""
    ports = {"http": run.port, "tcp": run.tcp_port}
    return {scheme: port for scheme, port in ports.items() if port is not None}


def game_settings(run: RunConfig, profile: EnvProfile, env: EnvReference, folder: Path) -> GamesSettings | None:
    """The settings of the node that games connect to; ``None`` if the environment is no game."""
    if profile.kind != "game":
        return None
    return GamesSettings(
        env=env,
        spaces=profile.spaces,
        host=run.host,
        http=run.port,
        tcp=run.tcp_port,
        token_file=None if run.token_file is None else str(expanded(run.token_file).resolve()),
        idle_seconds=run.idle_seconds,
        episodes=RunFolder(folder).episodes,
        keep_episodes=run.keep_episodes,
        patience=_PATIENCE * run.stall_timeout,
    )


def _check(run: RunConfig, name: str, topology: str) -> None:
    missing = [package for package in _PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ConfigError(f"--env {name} needs {missing[0]}; type: pip install 'penstock[serve]'")
    if run.sync_mode == "blocking" or "non_blocking" not in TOPOLOGIES[topology].modes:
        raise ConfigError(
            f"--env {name} needs --sync_mode non_blocking: in lock step every update waits for all lanes, and games "
            "connect, tick and leave when they like"
        )
    if run.num_workers not in {AUTO, run.num_envs}:
        raise ConfigError(
            f"--num_workers {run.num_workers}: each session of a game is a lane of its own; leave --num_workers out, "
            "and give --num_envs"
        )
    if run.port and run.port == run.tcp_port:
        raise ConfigError(f"--port and --tcp_port are both {run.port}; give each a port of its own")
    if run.eval_episodes not in {0, RunConfig.eval_episodes}:
        raise ConfigError("--eval_episodes is not for games: games cannot be asked for episodes")
    instead = {
        "wrap": "change state.obs and state.reward in Agent.on_tick",
        "reward": "set state.reward in Agent.on_tick",
        "vector_env": "each session is one lane",
        "eval_interval": "games cannot be asked for episodes",
        "table_on": "games connect to the launcher, whose machine runs all nodes",
    }
    for setting, why in instead.items():
        if getattr(run, setting) != getattr(RunConfig, setting):
            raise ConfigError(f"--{setting} is not for games: {why}")
    if run.token_file is None and not is_loopback(run.host):
        raise ConfigError(f"--host {run.host} can be reached from other machines; give --token_file FILE")
