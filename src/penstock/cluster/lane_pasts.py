"""Notes what home knows of the past of each lane on a host. So a rollout brings along only what home lacks."""

from penstock.cluster.messages import Task
from penstock.memory.action_log import Past, Position
from penstock.memory.snapshots import Snapshot
from penstock.nodes.contract import LaneStart
from penstock.program.graph import ActionLog, NodeSpec, Program
from penstock.types import Arrays
from penstock.wiring.edges import Wiring

__all__ = ["LanePasts"]


class LanePasts:
    """The lanes of the environment nodes of a host.

    Args:
        program: of the host.
        wiring: of the host.
    """

    def __init__(self, program: Program, wiring: Wiring) -> None:
        self._wiring = wiring
        self._logs = {edge.writer: edge for edge in program.edges if isinstance(edge, ActionLog)}
        self._told: dict[str, list[int]] = {}
        """Group -> for each lane, how many of its actions home knows."""
        self._based: dict[str, list[int]] = {}
        """Group -> for each lane, how many actions came before the latest snapshot that home knows."""

    def begin(self, group: str, task: Task) -> None:
        """Set the action log of an environment node to where its lanes begin."""
        log = self._wiring.action_log(self._logs[task.node.name].name)
        for lane, position in enumerate(task.positions):
            log.rewind(lane, position)
        starts: tuple[LaneStart, ...] = task.node.settings.starts
        self._based[group] = [
            position.first_step + position.steps + (0 if start.base is None else start.base.position.steps)
            for position, start in zip(task.positions, starts, strict=True)
        ]
        self._told[group] = [
            based + (0 if start.actions is None else len(start.actions))
            for based, start in zip(self._based[group], starts, strict=True)
        ]

    def unknown(self, group: str, node: NodeSpec, rollout: Arrays) -> tuple[dict[int, Past], dict[int, Snapshot]]:
        """What home lacks of each lane's past besides the rollout's actions.

        Returns:
            Lane -> its past, if its last actions before this rollout went into a dropped one. Lane -> a new snapshot.
        """
        pasts, bases, told, based = {}, {}, self._told[group], self._based[group]
        steps, log = node.settings.num_steps, self._wiring.action_log(self._logs[node.name].name)
        for lane, row in enumerate(rollout["lane_position"]):
            end = Position(*map(int, row))
            total = end.first_step + end.steps
            # If the rollout before was dropped, home lacks its actions. The lane's episode may go on, so send them.
            if total - steps != told[lane] and (past := log.past(lane, end)) is not None:
                pasts[lane] = past
            if (base := log.new_base(lane, end, based[lane])) is not None:
                bases[lane] = base
                based[lane] = base.position.first_step + base.position.steps
            told[lane] = total
        return pasts, bases
