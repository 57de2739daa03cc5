"""Which fields of a table's slots are observations, and in which runs these go straight to the machine of the learner.

Home needs no observation of a row that it does not sample. Knows no cluster.
"""

from collections.abc import Mapping, Sequence

from penstock.cluster.crossing import sampled
from penstock.cluster.movable import movable_learners
from penstock.nodes.env import EnvSettings
from penstock.nodes.learner import ReplayLearnerSettings
from penstock.program.graph import Program
from penstock.types import Array, Arrays

__all__ = ["observation_bytes", "observation_fields", "only", "readers_apart", "without"]

LEAST_BYTES = 64 << 10
"""A rollout with fewer bytes of observations goes home as a whole. One more call of Ray takes 2 to 5 ms on a busy
machine, and so many bytes take half a millisecond at 1 Gbit/s. Runs on three hosts of one machine, where no link is
saved, took as long either way."""
_COUNT = "final_count"
"""Says how far the side area of last observations is filled."""


def observation_fields(program: Program) -> tuple[str, ...]:
    """The fields with observations in a slot of the table that movable learners sample; empty if there is none."""
    table = sampled(program)
    if table is None:
        return ()
    found = [node.settings.spaces.obs for node in program.nodes if isinstance(node.settings, EnvSettings)]
    names = {name for fields in found for name, _ in fields}
    return tuple(spec.name for spec in table.arrays if spec.name.removeprefix("final.") in names)


def observation_bytes(program: Program) -> int:
    """Bytes of the observations of one rollout, without the last ones of its episodes."""
    table, fields = sampled(program), observation_fields(program)
    rows = () if table is None else (spec for spec in table.arrays if not spec.name.startswith("final."))
    return sum(spec.nbytes for spec in rows if spec.name in fields)


def readers_apart(program: Program) -> dict[str, str]:
    """Environment node -> the learner to whose machine the observations of its rollouts go straight.

    Empty if home needs them itself: it keeps all rows, or running statistics of observations.

    Args:
        program: of home.
    """
    table = sampled(program)
    if table is None or not table.resident or _normalized(program) or observation_bytes(program) < LEAST_BYTES:
        return {}
    moving, share = movable_learners(program), len(table.writers) // table.shards
    readers = {writer: table.readers[number // share] for number, writer in enumerate(table.writers)}
    return {writer: reader for writer, reader in readers.items() if program.node(reader).group in moving}


def _normalized(program: Program) -> bool:
    """Whether the learner at home reads the observations of all new rows."""
    return any(
        node.settings.keeper.spec.policy.normalize_obs
        for node in program.nodes
        if isinstance(node.settings, ReplayLearnerSettings)
    )


def without(arrays: Mapping[str, Array], fields: Sequence[str]) -> Arrays:
    """The other fields of a slot."""
    return {name: array for name, array in arrays.items() if name not in fields}


def only(arrays: Mapping[str, Array], fields: Sequence[str]) -> Arrays:
    """These fields of a slot, with what says how far they are filled."""
    return {name: arrays[name] for name in (*fields, _COUNT)}
