"""Signs of life and of progress in shared memory, by which the supervisor follows a run. Decides nothing."""

from collections.abc import Collection
from time import monotonic_ns

from penstock.program.graph import ActionLog, Board, NodeSpec, Program, Record, Stream
from penstock.supervision.contract import Silence
from penstock.types import Cause
from penstock.wiring.edges import SUPERVISOR, Wiring

__all__ = ["SharedSigns"]

STOPPING_SILENCE_S = 5.0
"""How long a node that the last checkpoint does not need may give no sign of life while the run is stopping."""


class SharedSigns:
    """Implements ``contract.Signs`` over the counters and streams of a run."""

    def __init__(self, wiring: Wiring, program: Program) -> None:
        self._wiring = wiring
        self._last = program.ends_with
        self._nodes = program.nodes
        self._seen: dict[str, tuple[int, int]] = {}
        """Node -> its sign, and when the sign changed."""
        self._begun_before: dict[str, int] = {}
        """Group -> how many lives had begun to open when its latest process was started.

        If there are no more by now, this process has not opened its nodes.
        """
        self._excused: list[tuple[int, int]] = []
        """Until when the machine stood still, and for how long."""
        self._logs = [wiring.action_log(edge.name) for edge in program.edges if isinstance(edge, ActionLog)]
        self._records = {edge.owner: edge.name for edge in program.edges if isinstance(edge, Record)}
        self._boards = [edge for edge in program.edges if isinstance(edge, Board)]
        group_of = {node.name: node.group for node in program.nodes}
        # Leave out streams whose readers are all finished at the end: nobody empties them.
        self._drains = [
            (edge, {group_of[reader] for reader in edge.readers}, memory)
            for edge, memory in wiring.streams()
            if not set(edge.readers) <= set(self._last)
        ]
        self._saves = [memory for edge, memory in wiring.streams() if self._saves_with(edge)]

    def _saves_with(self, edge: Stream) -> bool:
        """Whether what the ending nodes write here must be read before the run may end."""
        return edge.when_full == "wait" and bool(set(self._last) & set(edge.writers))

    def finished(self) -> bool:
        """True once the nodes of ``Program.ends_with`` have finished."""
        return all(self._wiring.counters.get(name, "finished") for name in self._last)

    def drained(self, running: Collection[str]) -> bool:
        """True once every slot that a running group still has to read is free again."""
        return all(memory.free() == memory.slots for _, groups, memory in self._drains if groups & set(running))

    def saved(self) -> bool:
        """True once the ending nodes have finished, and all that the last checkpoint needs was read."""
        return self.finished() and all(memory.free() == memory.slots for memory in self._saves)

    def deserted(self, running: Collection[str]) -> bool:
        """True if a stream is full and no running group reads it: its writers would wait for ever."""
        waited = ((groups, memory) for edge, groups, memory in self._drains if edge.when_full == "wait")
        return any(memory.free() == 0 for groups, memory in waited if not groups & set(running))

    def expect(self, group: str, limit_s: float) -> None:
        """The nodes of a group are about to start: they may give no sign of life for so long."""
        now = monotonic_ns()
        self._begun_before[group] = self._lives_begun(group)
        for node in self._nodes:
            if node.group == group:
                self._wiring.counters.set(node.name, "heartbeat_ns", now)
                self._wiring.counters.set(node.name, "busy_until_ns", now + int(limit_s * 1e9))

    def achieved(self, group: str) -> int:
        """A number that grows with the progress of a group.

        - A group with records: the number of its commits. Slots do not count, because a new life may hand on once more
          what an earlier life has handed on already, such as a checkpoint.
        - A group without records: the slots that it has handed on, and the questions that it has answered.
        """
        names = [node.name for node in self._nodes if node.group == group]
        records = [self._wiring.record(self._records[name]) for name in names if name in self._records]
        if records:
            return sum(record.number() for record in records)
        return sum(self._wiring.counters.get(name, "handed_on") for name in names)

    def needed(self, group: str) -> bool:
        """True if the last checkpoint needs this group: it ends the run, or it reads what the ending nodes write.

        A group without nodes of the program, such as the relay of a cluster, carries what others need.
        """
        own = {node.name for node in self._nodes if node.group == group}
        if not own:
            return True
        reads = any(own & set(edge.readers) for edge, _ in self._wiring.streams() if self._saves_with(edge))
        return reads or any(not self._wiring.counters.get(name, "finished") for name in own & set(self._last))

    def progress(self) -> tuple[int, ...]:
        """Counts of all nodes that change while the run makes progress.

        Slots handed on, announced work, episodes of evaluations, and the steps of each action log; the time, while a
        node does announced work.
        """
        counters, now = self._wiring.counters, monotonic_ns()
        counts = [
            sum(counters.get(node.name, name) for node in self._nodes)
            for name in ("handed_on", "busy_until_ns", "episodes_evaluated")
        ]
        steps = [log.position(0) for log in self._logs]
        busy = any(counters.get(node.name, "busy_until_ns") > now for node in self._nodes)
        return now if busy else 0, *counts, *(where.first_step + where.steps for where in steps)

    def waits(self, groups: Collection[str]) -> str:
        """A line for each node of these groups: its last sign of life, and the slots that it could read or fill."""
        return "\n".join(self._wait_of(node) for node in self._nodes if node.group in groups)

    def _wait_of(self, node: NodeSpec) -> str:
        counters, now = self._wiring.counters, monotonic_ns()
        parts = [f"last sign of life {(now - counters.get(node.name, 'heartbeat_ns')) / 1e9:.1f} s ago"]
        if counters.get(node.name, "finished"):
            parts.append("has finished")
        busy = (counters.get(node.name, "busy_until_ns") - now) / 1e9
        if busy > 0:
            parts.append(f"at announced work for up to {busy:.0f} s more")
        for edge, memory in self._wiring.streams():
            if node.name in edge.writers:
                parts.append(f"{memory.free()} of {memory.slots} slots of {edge.name} to fill")
            if node.name in edge.readers:
                parts.append(f"{memory.ready()} of {memory.slots} slots of {edge.name} to read")
        parts += [
            f"{edge.name} at version {self._wiring.board(edge.name).version()}"
            for edge in self._boards
            if node.name in edge.readers
        ]
        return f"{node.name}: {', '.join(parts)}"

    def silent(self, running: Collection[str]) -> Silence | None:
        """A node of the running groups that gave no sign of life for longer than it may, if there is one.

        The nodes of a group share a loop: while one of them does announced work, none of them is silent.
        """
        counters, now = self._wiring.counters, monotonic_ns()
        for group in running:
            nodes = [node for node in self._nodes if node.group == group]
            busy_until = max(counters.get(node.name, "busy_until_ns") for node in nodes)
            latest = max(nodes, key=lambda node: self._alive_ns(node.name, now))
            alive = self._alive_ns(latest.name, now)
            excused = sum(length for until, length in self._excused if until > alive)
            silence = (now - alive - excused) / 1e9
            limit = max(node.silence_limit_s for node in nodes)
            stepping = latest.steps_envs and busy_until < alive
            if counters.get(SUPERVISOR, "stopping") and not self.needed(group):
                # No new work begins, and the user waits for the end.
                limit, stepping = min(limit, STOPPING_SILENCE_S), False
            if now > busy_until + excused and silence > limit:
                cause = Cause.SLOW_STEP if stepping else Cause.SILENT
                if self._begun_before.get(group) == self._lives_begun(group):
                    cause = Cause.SLOW_START
                return Silence(latest.name, group, silence, cause)
        return None

    def _lives_begun(self, group: str) -> int:
        """How many lives of a group's nodes have come so far that they open."""
        return sum(self._wiring.counters.get(node.name, "begun") for node in self._nodes if node.group == group)

    def excuse(self, seconds: float) -> None:
        """So many seconds until now count for no node's silence."""
        self._excused.append((monotonic_ns(), int(seconds * 1e9)))

    def _alive_ns(self, node: str, now: int) -> int:
        """When a node's loop last began a round, or its sign was last seen to change."""
        sign, seen = self._wiring.counters.get(node, "sign"), self._seen.get(node)
        if seen is None or seen[0] != sign:
            # The first look only notes the sign: a change is what shows life.
            seen = self._seen[node] = (sign, 0 if seen is None else now)
        return max(seen[1], self._wiring.counters.get(node, "heartbeat_ns"))

    def stop(self) -> None:
        """Ask all nodes to begin nothing new."""
        self._set("stopping")

    def end(self) -> None:
        """Ask all loops to end."""
        self._set("ended")

    def _set(self, word: str) -> None:
        self._wiring.counters.set(SUPERVISOR, word, 1)
        self._wiring.bells.ring_all()
