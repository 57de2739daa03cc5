"""Checks that the settings of networks have an effect on a policy. Notes before a run that its network is exported."""

from collections.abc import Sequence
from typing import Any

from penstock.config.fields import AUTO, fields_of
from penstock.config.whole import Config
from penstock.errors import NoEffectError
from penstock.policies import PolicyGraph
from penstock.policies.description import decided, names_module

__all__ = ["check_network_settings", "export_note"]

_OF_NETWORKS = (
    "hidden_sizes",
    "activation",
    "layer_norm",
    "critic_layer_norm",
    "dropout",
    "critic_dropout",
    "init",
    "memory_size",
    "share_memory",
    "precision",
)
"""Settings that a module of one's own does not see."""
_OF_MEMORY = ("memory_size", "share_memory", "burn_in", "learned_steps")


def check_network_settings(
    graph: PolicyGraph,
    config: Any,  # noqa: ANN401 - each algorithm has its own
    read: Sequence[str] = (),
) -> None:
    """Check that every setting of the networks that differs from its default has an effect.

    Args:
        graph: the policy.
        config: the settings.
        read: settings that other networks than those of ``graph`` read.

    Raises:
        NoEffectError: nothing reads a setting that was given.
    """
    unread = decided(config.model, graph.encoding) if config.model.startswith("{") else {}
    if not graph.carry:
        unread |= dict.fromkeys(_OF_MEMORY, "the policy has no memory; give --model lstm or gru")
    if not config.model.startswith("{") and [part.kind for part in graph.encoding] == ["image"]:
        unread |= dict.fromkeys(("hidden_sizes", "activation"), "an image alone has no layers behind its encoder")
    if not graph.dropout:
        unread["dropout"] = "no layer drops: the critic has no hidden MLP layer, or a table decides it"
    if graph.actor.own is not None:
        unread |= dict.fromkeys(_OF_NETWORKS, f"--model {config.model} makes its layers itself")
    for field in fields_of(type(config)):
        given = getattr(config, field.name) != field.default
        if given and field.name in unread and field.name not in read:
            raise NoEffectError(f"--{field.name} has no effect: {unread[field.name]}", field.name)


def export_note(config: Config) -> str:
    """One line if a module of the user's own is exported before a run begins, which takes seconds; else empty."""
    run, model = config.run, getattr(config.algorithm, "model", "")
    exported = run.inference == "onnx" or (run.inference == AUTO and run.device == "cpu")
    if not exported or not names_module(model):
        return ""
    return f"exporting {model} to ONNX, so that processes that act need no torch; this takes some seconds"
