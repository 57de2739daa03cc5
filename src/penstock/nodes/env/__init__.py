"""EnvNode: steps environments and writes their rollouts."""

from penstock.nodes.env.node import EnvNode
from penstock.nodes.env.settings import EnvSettings

__all__ = ["EnvNode", "EnvSettings"]
