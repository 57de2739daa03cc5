"""Observation fields that only the critic sees (``critic_obs``): a centralised critic. Builds no network."""

import shlex
from collections.abc import Sequence

from penstock.errors import ConfigError, nearest
from penstock.policies.encoding import width_of
from penstock.policies.network import Branch
from penstock.policies.trunk import Body, Trunk
from penstock.types import Spaces

__all__ = ["actors_spaces", "check_body", "with_branches"]


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


def _is_within(field: str, name: str) -> bool:
    return field == name or field.startswith(f"{name}.")
