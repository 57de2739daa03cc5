"""Which runs can learn from kept episodes: by their algorithm, their actions and their settings. Learns nothing."""

from penstock.algorithm import AlgorithmSpec
from penstock.algorithm_package import AlgorithmPackage, algorithms_that
from penstock.errors import ConfigError
from penstock.planning import Prepared
from penstock.policies.space_heads import kind_of
from penstock.registry import UPDATES, load
from penstock.types import Box, Discrete, Spaces

__all__ = ["action_space"]


def action_space(prepared: Prepared) -> Box | Discrete:
    """The action space of a run that can learn from kept episodes.

    Raises:
        ConfigError: it cannot. The text says why, and which algorithms can, with these spaces.
    """
    spec, run, spaces = prepared.spec, prepared.config.run, prepared.profile.spaces
    lacks = _lacks(spec)
    if lacks is not None:
        others = algorithms_that(lambda package: _suits(package, spaces))
        raise ConfigError(f"{run.algo} {lacks}; at their defaults {others or 'none'} can")
    if not isinstance(spaces.action, Box | Discrete):
        raise ConfigError(
            f"kept episodes hold actions of a Box or a Discrete, and those of the run are {spaces.action!r}"
        )
    if prepared.reward is not None:
        raise ConfigError("the run has learned from a --reward of its own, and kept episodes hold those of the clients")
    if UPDATES[run.backend].replay is None:
        raise ConfigError(f"--backend {run.backend} does not learn from a table")
    return spaces.action


def _lacks(spec: AlgorithmSpec) -> str | None:
    """What an algorithm needs that kept episodes do not hold, to be read after its name; ``None``: nothing."""
    if spec.table is None:
        return "learns from rollouts of its present policy, and kept episodes are of others"
    if spec.table.sequences is not None or spec.policy.carry:
        return "learns with a memory here, which kept episodes do not hold"
    missing = [part.name for part in spec.row if part.name in spec.minibatch]
    return f"learns from {missing[0]} of the policy that acted, which kept episodes do not hold" if missing else None


def _suits(package: AlgorithmPackage, spaces: Spaces) -> bool:
    """Whether an algorithm at its defaults can learn from kept episodes of these spaces."""
    if kind_of(spaces.action) not in package.actions or not isinstance(spaces.action, Box | Discrete):
        return False
    return _lacks(load(package.spec)(spaces, package.config())) is None
