"""What a node that answers for a policy needs to know of it. It holds no parameters: they are published."""

from dataclasses import dataclass

from penstock.policies import PolicyGraph
from penstock.policies.exploration import Exploration
from penstock.types import ArraySpec, BackendSpec, NoiseSpec, Spaces

__all__ = ["PolicySettings"]


@dataclass(frozen=True)
class PolicySettings:
    """What answers."""

    backend: BackendSpec
    graph: PolicyGraph
    noise: NoiseSpec
    spaces: Spaces
    row: tuple[ArraySpec, ...]
    """The algorithm's own row fields, which the answer fills in beside ``action``."""
    seed: int
    exploration: Exploration
    stacks: tuple[ArraySpec, ...] = ()
    """Observation fields of which rows keep one frame only, as the policy sees one lane's."""
