"""Builds policy graphs that fit given spaces: a trunk, the layers of outputs above it, a head.

Imports no torch, so that every algorithm's spec may use it. Chooses no hyper-parameters.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from penstock.algorithm_lookup import algorithms_with, check_actions
from penstock.errors import ConfigError, NoEffectError, SpaceError
from penstock.policies import (
    Deterministic,
    Dueling,
    Encoding,
    EpsilonGreedy,
    Head,
    Linear,
    Network,
    OwnModule,
    PolicyGraph,
    SquashedGaussian,
)
from penstock.policies.critic_fields import actors_spaces, check_body, with_branches
from penstock.policies.description import names_module, trunk_described
from penstock.policies.space_heads import head_of, kind_of, size_of
from penstock.policies.stacks import ActivationName, mlp
from penstock.policies.trunk import Body, Trunk, flat_encoding, trunk_of
from penstock.registry import load
from penstock.types import Discrete, Spaces

__all__ = [
    "PRECISION_TEXT",
    "ActivationName",
    "Body",
    "PrecisionName",
    "actor_critic",
    "deterministic_actor",
    "flat_encoding",
    "mlp",
    "normalising",
    "q_network",
    "squashed_actor",
]

PrecisionName: TypeAlias = Literal["float32", "bfloat16", "float16"]
PRECISION_TEXT = (
    "number type of the networks' layers while learning, the last one left out; bfloat16: up to twice as fast for "
    "images and wide layers, on GPUs and on processors with avx512_bf16 or amx_bf16, slower on others; float16: for "
    "GPUs without bfloat16, with a scaled loss"
)
MemoryUse: TypeAlias = Literal["none", "optional", "required"]
"""The networks that an algorithm learns: only those without a memory, all, or only those with one."""


def actor_critic(
    spaces: Spaces,
    body: Body,
    log_std_init: float,
    *,
    normalize_obs: bool,
    normalize_value: bool,
    critic_obs: Sequence[str] = (),
) -> PolicyGraph:
    """The policy of an on-policy actor-critic: two MLPs, or one network where there is an image or a memory.

    With ``critic_obs`` there are always two networks, and the actor does not see these fields: the centralised critic
    of Yu et al. 2021, https://arxiv.org/abs/2103.01955.

    Raises:
        ConfigError: there is no such model, or it cannot be used; or as `actors_spaces`.
        SpaceError: this body does not serve the observation or action space.
    """
    head = head_of(spaces.action)
    free = (("log_std", head.deviations, log_std_init),) if head.deviations else ()
    if critic_obs:
        check_body(body, own=_is_own(body))
    if _is_own(body):
        if normalize_obs:
            raise ConfigError(f"--model {body.model} sees observations as they are: leave --normalize_obs off")
        own = _own(spaces, body, head.outputs, gives_value=True)
        actor = Network("actor", (own,), free)
        return PolicyGraph(_raw(spaces), actor, None, head, normalize_value=normalize_value, mask=spaces.mask)
    trunk = _trunk(spaces, body)
    if normalize_obs:
        _check_normalised(trunk.encoding)
    if trunk.shared and not critic_obs:
        if trunk.drops:
            of_table = body.model.startswith("{") and not body.dropout
            raise NoEffectError(
                f"{'dropout of the table' if of_table else '--dropout'} is for a critic of its own, and here actor and "
                "critic share their layers: an actor that drops outputs while learning is another policy than the one "
                "that acted; leave it out",
                "dropout",
            )
        # One layer holds both heads. Its small gain keeps the first policy near uniform and the first values near 0.
        actor = _network("actor", trunk, head.outputs + 1, body, gain=0.01, free=free)
        return PolicyGraph(trunk.encoding, actor, None, head, normalize_obs, normalize_value, mask=spaces.mask)
    # The gains of Andrychowicz et al. 2021 (https://arxiv.org/abs/2006.05990): a last policy layer 100 times smaller.
    # Only the critic drops: what acted dropped nothing, and the importance ratio compares both policies.
    acting = with_branches(_trunk(actors_spaces(spaces, critic_obs), body)) if critic_obs else trunk
    actor = _network("actor", acting.without_dropout(), head.outputs, body, gain=0.01, free=free)
    critic = _network("critic", trunk, 1, body, gain=1.0)
    return PolicyGraph(trunk.encoding, actor, critic, head, normalize_obs, normalize_value, mask=spaces.mask)


def normalising(graph: PolicyGraph, spaces: Spaces) -> PolicyGraph:
    """The graph of an algorithm with a table, with running statistics of its vector fields.

    Raises:
        ConfigError: the network is a module of the user's own.
        SpaceError: there is no vector field, or one is a stack of frames: a table stores each frame once.
    """
    if graph.actor.own is not None:
        raise ConfigError("--model: a module of your own sees observations as they are: leave --normalize_obs off")
    _check_normalised(graph.encoding)
    vectors = {part.field for part in graph.encoding if part.is_vector}
    stacked = [name for name in spaces.stacks() if name in vectors]
    if stacked:
        raise SpaceError(
            f"{stacked[0]} is a stack of frames, which has no running statistics: leave --normalize_obs off"
        )
    return replace(graph, normalize_obs=True)


def _check_normalised(encoding: Sequence[Encoding]) -> None:
    if not any(part.is_vector for part in encoding):
        raise SpaceError("images are scaled to [0, 1] already: leave --normalize_obs off, or pass --model mlp")


def squashed_actor(spaces: Spaces, body: Body, algorithm: str, *, memory: MemoryUse = "none") -> PolicyGraph:
    """An actor with a `SquashedGaussian` head and no value. Its first policy is nearly ``tanh(noise)``.

    ``memory`` says whether the algorithm learns networks with a memory.

    Raises:
        SpaceError: it does not serve these spaces. The text names ``algorithm`` and the algorithms that do.
    """
    return _actor(
        spaces, body, algorithm, SquashedGaussian(size_of(spaces.action, algorithm)), gain=0.01, memory=memory
    )


def deterministic_actor(spaces: Spaces, body: Body, algorithm: str) -> PolicyGraph:
    """An actor with a `Deterministic` head and no value. Its first actions are nearly the middle of the bounds.

    Raises:
        SpaceError: as for `squashed_actor`.
    """
    return _actor(spaces, body, algorithm, Deterministic(size_of(spaces.action, algorithm)), gain=0.01)


def q_network(
    spaces: Spaces,
    body: Body,
    algorithm: str,
    *,
    dueling: bool,
    atoms: int,
    low: float,
    high: float,
    memory: MemoryUse = "none",
) -> PolicyGraph:
    """Action values with an `EpsilonGreedy` head.

    Args:
        spaces: the spaces of one lane.
        body: the layers below the last one.
        algorithm: name of the algorithm, for the error's text.
        dueling: end in a `Dueling` layer.
        atoms: 1, or the number of logits for each action.
        low: value of the first atom.
        high: value of the last atom.
        memory: whether the algorithm learns networks with a memory.

    Raises:
        SpaceError: as for `squashed_actor`.
    """
    check_actions(algorithm, ("discrete",), kind_of(spaces.action))
    if not isinstance(spaces.action, Discrete):
        raise SpaceError(f"{algorithm} needs Discrete actions")
    head = EpsilonGreedy(spaces.action.n, atoms, low, high)
    if _is_own(body) and dueling:
        raise ConfigError(f"--model {body.model} gives the action values itself: leave --dueling off")
    last = Dueling(head.n, atoms) if dueling else None
    return _actor(spaces, body, algorithm, head, gain=1.0, dueling=last, memory=memory)


def _actor(
    spaces: Spaces,
    body: Body,
    algorithm: str,
    head: Head,
    *,
    gain: float,
    dueling: Dueling | None = None,
    memory: MemoryUse = "none",
) -> PolicyGraph:
    """One network for one head, and no value. ``gain`` scales the initial weights of the last linear layer."""
    if _is_own(body):
        # The memory is checked before the outputs. A module for another kind of algorithm has other outputs as well.
        carry = load("penstock.torch_networks.own_trial:carry_of")(body.model, _without_mask(spaces), head.outputs)
        _check_memory(body, algorithm, memory, has=bool(carry))
        encoding, network = _raw(spaces), Network("actor", (_own(spaces, body, head.outputs, gives_value=False),))
    else:
        trunk = _trunk(spaces, body)
        outputs = head.outputs if dueling is None else (1 + dueling.n) * dueling.atoms
        encoding, network = trunk.encoding, _network("actor", trunk, outputs, body, gain=gain, dueling=dueling)
    _check_memory(body, algorithm, memory, has=bool(network.carry))
    if network.dropout:
        raise ConfigError(f"--model: dropout is for {algorithms_with('dropout')}; {algorithm} learns without it")
    return PolicyGraph(encoding, network, None, head, gives_value=False, mask=spaces.mask)


def _check_memory(body: Body, algorithm: str, use: MemoryUse, *, has: bool) -> None:
    """Check that an algorithm can learn a network that has a memory, or has none.

    Raises:
        ConfigError: it cannot.
    """
    model = ": this table" if body.model.startswith("{") else f" {body.model}"
    if has and use == "none":
        others = algorithms_with("memory_size")
        raise ConfigError(f"--model{model} has a memory, and {algorithm} learns from single rows: for it use {others}")
    if not has and use == "required":
        raise ConfigError(
            f"--model{model} has no memory, and {algorithm} learns through one: give lstm or gru, or a module with a "
            "carry"
        )


def _network(
    name: str,
    trunk: Trunk,
    outputs: int,
    body: Body,
    *,
    gain: float,
    free: tuple[tuple[str, int, float], ...] = (),
    dueling: Dueling | None = None,
) -> Network:
    """The trunk with its last linear layer."""
    last = (Linear(trunk.features, outputs, gain), *(() if dueling is None else (dueling,)))
    return Network(name, (*trunk.layers, *last), free, trunk.branches, body.init)


def _trunk(spaces: Spaces, body: Body) -> Trunk:
    return trunk_described(spaces, body) if body.model.startswith("{") else trunk_of(spaces, body)


def _is_own(body: Body) -> bool:
    return names_module(body.model)


def _own(spaces: Spaces, body: Body, outputs: int, *, gives_value: bool) -> OwnModule:
    """The user's own module as data. Making it needs torch, which is loaded here."""
    describe = load("penstock.torch_networks.own_trial:described")
    found: OwnModule = describe(body.model, _without_mask(spaces), outputs, gives_value=gives_value)
    return found


def _without_mask(spaces: Spaces) -> Spaces:
    """The spaces as networks see them."""
    return Spaces(spaces.seen, spaces.action)


def _raw(spaces: Spaces) -> tuple[Encoding, ...]:
    """Every field as it is."""
    return tuple(
        Encoding(part.name, "raw", part.size, shape=part.shape, dtype=part.dtype)
        for part in _without_mask(spaces).obs_specs()
    )
