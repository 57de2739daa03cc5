"""EnvNode: steps environments and writes what they give."""

from penstock.nodes.env.node import EnvNode
from penstock.nodes.env.settings import EnvSettings

__all__ = ["EnvNode", "EnvSettings"]
