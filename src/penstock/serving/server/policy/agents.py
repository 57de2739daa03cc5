"""Through which agent the clients of each served policy play: that of its run, or the one of ``--agent``. Runs none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.config.commands import ServeOptions
from penstock.envs.games import SCHEME, agent_class, agent_name, is_game
from penstock.errors import ConfigError, EnvError
from penstock.registry import AGENT_HOOKS, load
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.bundle import read_bundle
from penstock.serving.server.policy.source import Source
from penstock.types import EnvRecipe

__all__ = ["agents_of"]

_OFF = "off"


class _Recorded(NamedTuple):
    """The agent with which a policy was trained."""

    name: str
    arguments: Mapping[str, Any]
    hooks: tuple[str, ...] | None
    """The methods that its class overrides; ``None``: that is not recorded."""


def agents_of(sources: Mapping[str, Source], options: ServeOptions) -> dict[str, EnvRecipe]:
    """The agents of the policies whose clients play through one, by the names of the policies.

    A policy is left out if its agent overrides nothing: then the server's own bodies are those of training.

    Args:
        sources: of the policies, by their names.
        options: of the command line.

    Raises:
        UsageError: an agent is not found; ``--agent`` is given for several policies; a bundle was exported from a run
            whose agent overrides a method, and ``--agent`` is left out.
    """
    asked = options.agent
    if asked == _OFF:
        return {}
    if asked is not None and len(sources) > 1:
        raise ConfigError(
            f"--agent {asked} is for one policy, and {len(sources)} are served; leave it out: each is served with the "
            "agent of its run"
        )
    found = {name: agent for name, source in sources.items() if (agent := _agent(source, asked)) is not None}
    if found and options.codec == "raw":
        reader = agent_name(next(iter(found.values())))
        raise ConfigError(f"--codec raw: agent {reader} reads the bodies itself; leave it out, or give --agent off")
    return found


def _agent(source: Source, asked: str | None) -> EnvRecipe | None:
    is_bundle = source.checkpoint is None
    own = _of_bundle(Path(source.path)) if is_bundle else _of_run(Path(source.path))
    if asked is not None:
        name = agent_name(asked)
        # Recorded arguments are for the recorded agent.
        return _changing(name, own.arguments if own is not None and own.name == name else {})
    if own is None or own.hooks == ():
        return None
    if is_bundle:
        # What a bundle says decides about no code that runs here.
        does = "may change" if own.hooks is None else f"overrides {', '.join(own.hooks)}, and so changes"
        raise ConfigError(
            f"bundle {source.path} was trained with agent {own.name}, which {does} what clients send and get; type "
            f"--agent {own.name}, or --agent off to serve the policy alone"
        )
    try:
        return _changing(own.name, own.arguments)
    except EnvError as error:
        raise EnvError(f"{error}; or give --agent off to serve the policy alone") from error


def _changing(name: str, arguments: Mapping[str, Any]) -> EnvRecipe | None:
    """The recipe of an agent; ``None``: its class overrides nothing."""
    recipe = EnvRecipe(SCHEME + name, arguments, ())
    return recipe if load(AGENT_HOOKS)(agent_class(recipe)) else None


def _of_run(folder: Path) -> _Recorded | None:
    run = RunFolder.open(folder).read_config().run
    return _Recorded(agent_name(run.env), run.env_args or {}, None) if is_game(run.env) else None


def _of_bundle(folder: Path) -> _Recorded | None:
    run = read_bundle(folder).facts.run
    if not is_game(run["env"]):
        return None
    agent = run.get("agent")
    # An older penstock has exported it.
    if agent is None:
        return _Recorded(agent_name(run["env"]), {}, None)
    return _Recorded(agent_name(run["env"]), agent["arguments"], tuple(agent["hooks"]))
