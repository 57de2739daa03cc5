"""Observation fields that only the critic sees (``critic_obs``): a centralised critic. Builds no network."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from penstock.errors import ConfigError, nearest
from penstock.policies.encoding import columns_of, width_of
from penstock.policies.graph import PolicyGraph
from penstock.policies.network import Branch
from penstock.policies.trunk import Body, Trunk
from penstock.types import Array, Spaces

__all__ = ["Deployed", "actors_spaces", "check_body", "deployed", "with_branches"]


def actors_spaces(spaces: Spaces, critic_obs: Sequence[str]) -> Spaces:
    """The spaces as the actor sees them.

    Args:
        spaces: of one lane.
        critic_obs: names of fields that only the critic sees, as a user types them: without ``obs.``. The name of a
            Dict or Tuple stands for all its fields.

    Raises:
        ConfigError: ``critic_obs`` names an unknown field, or leaves the actor none.
    """
    given = f"--critic_obs {shlex.quote(','.join(critic_obs))}"
    names = {field: field.removeprefix("obs.") for field, _ in spaces.seen if field != "obs"}
    if not names:
        raise ConfigError(f"{given} names fields of a Dict or Tuple, and the observation is neither: leave it out")
    for name in critic_obs:
        if not any(_is_within(known, name) for known in names.values()):
            hint = nearest(name, names.values()) or f"; its fields are {', '.join(names.values())}"
            raise ConfigError(f"{given}: the policy sees no field {name}{hint}")
    hidden = {field for field, known in names.items() if any(_is_within(known, name) for name in critic_obs)}
    if len(hidden) == len(names):
        raise ConfigError(f"{given} leaves the actor nothing to see; keep at least one of {', '.join(names.values())}")
    return Spaces(tuple(part for part in spaces.obs if part[0] not in hidden), spaces.action, spaces.mask)


def check_body(body: Body, *, own: bool) -> None:
    """Check that actor and critic can see different fields.

    Raises:
        ConfigError: a description or a user's own module chooses the fields itself, or both share their layers.
    """
    if own or body.model.startswith("{"):
        what = f"--model {body.model}" if own else "a description (--model FILE.toml)"
        raise ConfigError(f"--critic_obs is for models by name, such as mlp, and {what} names its fields itself")
    if body.share_memory:
        raise ConfigError("--critic_obs needs a critic with layers of its own: leave --share_memory off")


def with_branches(trunk: Trunk) -> Trunk:
    """The same trunk, which names its fields. Without branches a network takes all fields that are encoded."""
    if trunk.branches:
        return trunk
    fields = tuple(part.field for part in trunk.encoding)
    return trunk._replace(branches=(Branch(fields, (), width_of(trunk.encoding)),))


class Deployed(NamedTuple):
    """A policy as production takes it. It has no critic if that sees fields which the actor does not see."""

    graph: PolicyGraph
    spaces: Spaces
    """Of one lane. Its ``unread`` fields are those that only the critic sees."""
    trained: PolicyGraph
    """The policy as it was trained."""

    def record(self, published: Mapping[str, Array]) -> Mapping[str, Array]:
        """The parameters and statistics of ``graph``, of those of ``trained``."""
        if not self.spaces.unread:
            return published
        found = {spec.name: published[spec.name] for spec in self.graph.published()}
        if self.graph.normalize_obs:
            vectors = [part.field for part in self.graph.encoding if part.is_vector]
            columns = columns_of(self.trained.encoding, vectors)
            for name in ("obs_mean", "obs_var"):
                found[name] = np.concatenate([published[name][low:high] for low, high in columns])
        return found


def deployed(graph: PolicyGraph, spaces: Spaces) -> Deployed:
    """The policy without what only learning needs.

    Args:
        graph: the policy as it was trained.
        spaces: of one lane, in training.
    """
    unread = _only_of_critic(graph)
    if not unread:
        return Deployed(graph, spaces, graph)
    encoding = tuple(part for part in graph.encoding if part.field not in unread)
    acting = replace(
        graph,
        encoding=encoding,
        critic=None,
        normalize_obs=graph.normalize_obs and any(part.is_vector for part in encoding),
        normalize_value=False,
        gives_value=False,
    )
    taken = tuple(part for part in spaces.obs if part[0] not in unread)
    left_out = tuple(part for part in spaces.obs if part[0] in unread)
    return Deployed(acting, replace(spaces, obs=taken, unread=left_out), graph)


def _only_of_critic(graph: PolicyGraph) -> frozenset[str]:
    """The fields that the critic sees and the actor does not. An actor without branches sees all."""
    if graph.critic is None or not graph.actor.branches:
        return frozenset()
    seen = {name for branch in graph.actor.branches for name in (*branch.fields, branch.mask)}
    return frozenset(part.field for part in graph.encoding) - seen


def _is_within(field: str, name: str) -> bool:
    return field == name or field.startswith(f"{name}.")
