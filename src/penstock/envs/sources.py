"""Probes an environment before a run, and makes the source of the lanes that a process steps.

Does not decide which process gets which lanes.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.envs.deadline import Deadline, deadline
from penstock.envs.fields import one_line
from penstock.envs.games import game_spaces, is_game
from penstock.envs.gymnasium import ScalarSource
from penstock.envs.masks import check_mask, mask_given, unusable_mask, with_mask
from penstock.envs.names import display_name, find, reference
from penstock.envs.older_api import declares
from penstock.envs.recipes import refusal
from penstock.envs.vector import VectorSource, is_vector
from penstock.errors import EnvError, UsageError
from penstock.types import EnvFactory, EnvKind, EnvRecipe, EnvReference, Spaces

__all__ = ["PROBED_LANES", "EnvProfile", "display_name", "find", "open_source", "probe", "reference"]

PROBED_LANES = 2
"""Lanes that a vector environment is asked for, to find out whether lanes can be seeded one by one."""


@dataclass(frozen=True)
class EnvProfile:
    """Facts about an environment, found by `probe` before the run starts."""

    name: str
    """A Gymnasium id, ``module:attribute``, or the name of a callable."""
    spaces: Spaces
    same_step: bool
    restorable: bool
    kind: EnvKind
    unused_mask: str | None = None
    """The field of an action mask that is not used: the algorithm uses no masks, or the actions have no choices."""
    agents: int = 1
    """Lanes of one environment. A process has all lanes of an environment or none."""


def probe(
    env: EnvReference | EnvFactory,
    vector: bool = False,
    *,
    lanes: int = PROBED_LANES,
    ignore_obs: Sequence[str] = (),
    masks: bool = False,
    make_limit_s: float = 300.0,
    reset_limit_s: float = 60.0,
) -> EnvProfile:
    """Make an environment, reset it once, read the facts that a run needs, and close it.

    Args:
        env: as in ``find``.
        vector: as in ``find``.
        lanes: of a vector environment. A run of one lane has no second one to ask for.
        ignore_obs: fields of the observation to leave out, as in ``used_fields``.
        masks: use its action mask, if it gives one.
        make_limit_s: longest time for making it, in seconds.
        reset_limit_s: longest time for resetting it, in seconds.

    Raises:
        ConfigError: ``ignore_obs`` names an unknown field, or leaves none.
        EnvError: the environment is unknown, or cannot be made, reset or closed in time.
        SpaceError: a space is not supported.
    """
    if is_game(env):
        spaces, unused = game_spaces(env, tuple(ignore_obs), masks=masks)
        return EnvProfile(display_name(env), spaces, same_step=False, restorable=False, kind="game", unused_mask=unused)
    name, many = display_name(env), declares(find(env, vector), "num_envs")
    with deadline(make_limit_s, f"making environment {name}"):
        source = open_source(env, vector, num_lanes=lanes if many else 1, ignore_obs=ignore_obs)
    kind: EnvKind = "vector" if many else "scalar"
    doing, limit = "reset", Deadline()
    try:
        with deadline(reset_limit_s, f"resetting environment {name}") as limit:
            source.reset(range(source.num_lanes))
        mask, spaces = mask_given(source.spaces, source.first_info), source.spaces
        unused = None if masks and spaces.action.choices else unusable_mask(spaces, source.first_info)
        if masks:
            check_mask(name, spaces, mask, source.first_info)
            spaces = with_mask(spaces, mask)
        doing = "closed"
        source.close()
    except Exception as error:
        # An environment whose reset has hung may hang here as well.
        if not limit.passed:
            with contextlib.suppress(Exception):
                source.close()
        if isinstance(error, UsageError):
            raise
        why = f"{type(error).__name__}: {one_line(error, 300)}"
        raise EnvError(f"environment {name} cannot be {doing}: {why}") from error
    return EnvProfile(name, spaces, source.same_step, source.restorable, kind, unused, source.agents)


def open_source(
    env: EnvReference | EnvFactory,
    vector: bool,
    num_lanes: int,
    first_lane: int = 0,
    seed: int = 0,
    *,
    ignore_obs: Sequence[str] = (),
    mask: str | None = None,
    masks: bool = False,
) -> ScalarSource | VectorSource:
    """Make the environments of some lanes.

    Args:
        env: as in ``find``. A factory with the parameter ``num_envs`` is called once and must return a vector
            environment with these lanes. Any other factory is called once for each lane.
        vector: as in ``find``.
        num_lanes: how many lanes to step; rounded up to whole environments, if each has several agents.
        first_lane: number of the first one, for error texts.
        seed: for a factory with the parameters ``num_envs`` and ``seed``: EnvPool can be seeded only when it is made.
        ignore_obs: as in ``probe``.
        mask: the field of the action mask that is used, as ``Spaces.mask``.
        masks: as in ``probe``; a mask that `probe` has not found is refused when it comes.

    Raises:
        ConfigError: ``ignore_obs`` names an unknown field, or leaves none.
        EnvError: the environment is unknown, or cannot be made.
        SpaceError: a space is not supported.
    """
    name, factory = display_name(env), find(env, vector)
    made: list[Any] = []
    try:
        if declares(factory, "num_envs"):
            seeded = declares(factory, "seed")
            given = {"num_envs": num_lanes, "seed": seed} if seeded else {"num_envs": num_lanes}
            made.append(_made(env, factory, given))
            return VectorSource(
                name, made[0], num_lanes, first_lane, seeded=seeded, ignore_obs=ignore_obs, mask=mask, masks=masks
            )
        for _ in range(num_lanes):
            made.append(_made(env, factory, {}))
            _check_scalar(name, made)
        return ScalarSource(name, made, first_lane, ignore_obs=ignore_obs, mask=mask, masks=masks)
    except BaseException:
        for one in made:
            if hasattr(one, "close"):
                # Ignore an error of `close`: the first error, which is raised again below, says more.
                with contextlib.suppress(Exception):
                    one.close()
        raise


def _made(env: EnvReference | EnvFactory, factory: EnvFactory, given: dict[str, int]) -> Any:
    try:
        return factory(**given)
    except UsageError:
        raise
    except Exception as error:
        arguments = env.arguments if isinstance(env, EnvRecipe) else {}
        raise refusal(display_name(env), arguments, error) from error


def _check_scalar(name: str, made: list[Any]) -> None:
    env = made[-1]
    if hasattr(env, "possible_agents"):
        place = name if ":" in name else "my_module:NAME, by the name of what makes it"
        raise EnvError(f"{name} returned an environment of PettingZoo, with several agents: write pettingzoo:{place}")
    if is_vector(env):
        raise EnvError(
            f"{name} returned a vector environment: give its factory a parameter num_envs, the number of lanes to make"
        )
    missing = [part for part in ("observation_space", "action_space", "reset", "step") if not hasattr(env, part)]
    if missing:
        raise EnvError(f"{name} returned {one_line(env)}, which has no {' and no '.join(missing)}")
    if any(env is other for other in made[:-1]):
        raise EnvError(f"{name} returned one environment twice: its factory must make a new one each time")
