"""Which runs can learn from kept episodes, and from which of them. Learns nothing.

A run: by its algorithm, its actions and its settings. An episode of a game: by the agent that has seen it.
"""

from pathlib import Path

from penstock.algorithm import DEMONSTRATED, AlgorithmSpec
from penstock.algorithm_lookup import AlgorithmPackage, algorithms_that
from penstock.errors import ConfigError
from penstock.planning import Prepared
from penstock.planning.kept_episodes import check_agent, lacking
from penstock.policies.space_heads import kind_of
from penstock.registry import UPDATES, load
from penstock.retraining.kept import Kept
from penstock.types import Box, Discrete, EnvReference, Spaces

__all__ = ["action_space", "check_seen"]


def action_space(prepared: Prepared) -> Box | Discrete:
    """The action space of a run that can learn from kept episodes.

    Raises:
        ConfigError: it cannot. The text says why, and which algorithms can, with these spaces.
    """
    spec, run, spaces = prepared.spec, prepared.config.run, prepared.profile.spaces
    lacks = _imitating(spec) or lacking(spec)
    if lacks is not None:
        others = algorithms_that(lambda package: _suits(package, spaces))
        raise ConfigError(f"{run.algo} {lacks}; at their defaults {others or 'none'} can")
    if not isinstance(spaces.action, Box | Discrete):
        raise ConfigError(
            f"kept episodes hold actions of a Box or a Discrete, and those of the run are {spaces.action!r}"
        )
    if prepared.reward is not None:
        raise ConfigError("the run has learned from a --reward of its own, and kept episodes hold those of the clients")
    if DEMONSTRATED in spec.minibatch:
        raise ConfigError("the run keeps to demonstrations (--imitation), and an attempt has none")
    if UPDATES[run.backend].replay is None:
        raise ConfigError(f"--backend {run.backend} does not learn from a table")
    return spaces.action


def check_seen(env: EnvReference, kept: Kept, place: Path) -> None:
    """Check that kept episodes hold what the agent of a run sees, if it may change what clients send.

    Args:
        env: of the run.
        kept: the episodes.
        place: their folder, for the error text.

    Raises:
        ConfigError: an episode holds what a client has sent, or what another agent has seen.
    """
    agents = {number: episode.agent for number, episode in {**kept.learned, **kept.held_out}.items()}
    check_agent(env, agents, f"--experience {place}")


def _imitating(spec: AlgorithmSpec) -> str | None:
    """Why an algorithm would not become better by served episodes, to be read after its name; ``None``: it would."""
    return None if spec.cloning is None else "would imitate what it has done itself"


def _suits(package: AlgorithmPackage, spaces: Spaces) -> bool:
    """Whether an algorithm at its defaults can learn from kept episodes of these spaces."""
    if kind_of(spaces.action) not in package.actions or not isinstance(spaces.action, Box | Discrete):
        return False
    spec = load(package.spec)(spaces, package.config())
    return (_imitating(spec) or lacking(spec)) is None
