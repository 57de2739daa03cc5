"""Steps that all algorithms with a table share: acting, the critics' input, optimizer steps, moving targets.

Pure functions on named tensors. Knows no loss.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from penstock.algorithm import DEMONSTRATED, Algorithm, Phase, Tensors
from penstock.algorithms.off_policy.critics import critic_encoding
from penstock.algorithms.off_policy.spec import ContinuousConfig, ReplayConfig
from penstock.algorithms.optimizer.learn import next_count, optimizer_step
from penstock.algorithms.optimizer.spec import NUMBERS, STEPS, Layout, layout_of
from penstock.ops.optimizers import polyak
from penstock.policies import Network, PolicyGraph
from penstock.policies.encoding import ACTION
from penstock.torch_networks.forward import Ensemble
from penstock.torch_networks.policy import Policy
from penstock.types import NoiseSpec, Spaces

__all__ = [
    "Networks",
    "act",
    "algorithm_of",
    "critic_input",
    "imitation",
    "move_target",
    "networks_of",
    "next_obs",
    "step_vector",
]


class Networks(NamedTuple):
    """An actor, and critics of observation and action."""

    policy: Policy
    critics: Ensemble

    def layouts(self) -> dict[str, Layout]:
        """The layouts of the vectors that are learned."""
        critics = self.critics
        actor = layout_of(self.policy.graph.actor)
        return {"actor": actor, "critic": layout_of(critics.network, critics.count), "log_alpha": NUMBERS}

    def dropout(self, use: str) -> tuple[tuple[str, NoiseSpec], ...]:
        """Names and specs of the noise of the critics' dropout, for one use of them in a phase; empty without it.

        Each use, and each critic in it, drops other outputs.
        """
        sizes = (part.shape for part in self.critics.network.dropout)
        return tuple(
            (f"{use}.{number}", NoiseSpec("uniform", (self.critics.count, *size))) for number, size in enumerate(sizes)
        )

    def dropped(self, noise: Tensors, use: str) -> list[Tensor]:
        """The noise of dropout for this use among the noise of a phase: ``[m, critics, size]`` each."""
        return [noise[name] for name, _ in self.dropout(use)]

    def values(self, state: Tensors, name: str, obs: Tensors, action: Tensor, dropped: Sequence[Tensor] = ()) -> Tensor:
        """Outputs of the critics of the vector ``name``: ``[critics, n, outputs]``. ``dropped``: noise of dropout."""
        return self.critics(state[name], critic_input(self, state, obs, action), dropped)


def networks_of(graph: PolicyGraph, config: ContinuousConfig, critic: Network, count: int) -> Networks:
    """The actor of ``graph``, and ``count`` critics of the shape of ``critic``."""
    return Networks(Policy(graph, config.precision), Ensemble(critic, count, critic_encoding(graph, config)))


def algorithm_of(policy: Policy, spaces: Spaces, *phases: Phase) -> Algorithm:
    """An algorithm without target fields and without running statistics."""
    return Algorithm(partial(act, policy, spaces), _nothing, _nothing, phases)


def act(policy: Policy, spaces: Spaces, published: Tensors, inputs: Tensors) -> Tensors:
    """The outputs of the policy's head, with the action in the shape of the action space."""
    outputs = policy.act(published, inputs)
    return {**outputs, "action": outputs["action"].reshape(-1, *spaces.action_spec().shape)}


def _nothing(state: Tensors, rollout: Tensors) -> Tensors:
    del state, rollout
    return {}


def next_obs(policy: Policy, minibatch: Tensors) -> dict[str, Tensor]:
    """The next observation: each ``next.<field>`` of the minibatch under the name ``<field>``."""
    return {name: minibatch[f"next.{name}"] for name in policy.graph.fields}


def critic_input(networks: Networks, state: Tensors, obs: Tensors, action: Tensor) -> dict[str, Tensor]:
    """Observations as critics see them beside actions, by name; an action is ``[n, size]``."""
    seen = networks.policy.encoded(networks.critics.encoding, state, obs, action.dtype)
    return {**seen, ACTION: action.reshape(len(action), -1).to(networks.policy.compute_dtype(action.dtype))}


def imitation(config: ContinuousConfig, minibatch: Tensors, action: Tensor, values: Tensor) -> Tensor | float:
    """How far the policy is from the demonstrations: ``[m]``, 0 for the run's own rows; to be added to its loss.

    ``imitation |Q(s, a)| |a - a_demonstrated|^2``, with the mean over an action's elements: equation 5 of Fujimoto and
    Gu 2021, https://arxiv.org/abs/2106.06860. Its factor is the mean size of the values in a minibatch; here it is the
    size of the row's own value, so that parts of a minibatch can be learned from apart.

    Args:
        config: with the coefficient.
        minibatch: the rows.
        action: of the policy in the states of the rows, ``[m, size]``.
        values: of these actions, ``[m]``. No gradient goes through their size.
    """
    if not config.imitation:
        return 0.0
    error = (action - minibatch["action"].reshape(len(action), -1)).square().mean(1)
    found: Tensor = config.imitation * minibatch[DEMONSTRATED] * values.detach().abs() * error
    return found


def step_vector(  # noqa: PLR0917 - as the mathematics reads
    layouts: Mapping[str, Layout], config: ReplayConfig, state: Tensors, name: str, gradient: Tensor, lr: float
) -> dict[str, Tensor]:
    """The vector ``name`` after one step of the optimizer, with its moments and its count of steps.

    ``lr`` is the learning rate at the start of the run. ``layouts`` has the layout of each learned vector.
    """
    count = next_count(config, state, f"{STEPS}.{name}")
    now = lr * (1.0 - state["progress"]) if config.lr_schedule == "linear" else lr
    return count | optimizer_step(config, state, name, gradient, now, count, layouts[name])


def move_target(state: Tensors, name: str, parameter: Tensor, tau: float) -> dict[str, Tensor]:
    """The target of the vector ``name``, moved by ``tau`` towards the vector's new value ``parameter``."""
    return {f"target.{name}": polyak(state[f"target.{name}"], parameter, tau)}
