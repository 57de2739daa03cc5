"""The processes of a command, forked from templates where they can be: of the probe, the run and its final evaluation.

A process reads what it is to do from a file, and inherits file descriptors. Decides nothing about a run.
"""

import os
import pickle
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.processes.command import environment, in_a_file, python
from penstock.processes.contract import GROUP, STACKS_SIGNAL, WORKER
from penstock.processes.warded import Warded

if TYPE_CHECKING:  # these import NumPy, and a template should start before the launcher imports that
    from penstock.memory.segment import Segment
    from penstock.processes.worker import WorkerSpec

__all__ = ["Processes"]

FORKS = sys.platform == "linux"
"""Whether templates fork processes. Other systems have no subreaper, and their libraries do not survive a fork."""
TEMPLATE = "import gc; gc.disable(); from penstock.processes.template import main; main()"
"""During its imports, garbage collection would find nothing and take a tenth of the time."""
STACKS_WAIT_S = 0.5


class Processes(Warded):
    """The processes of a command by their names; those of a run have the names of their placement groups.

    One program after the other runs in them. ``clear`` lies between two.
    """

    def __init__(self) -> None:
        super().__init__()
        self._templates: set[str] = set()

    def get_ready(self) -> None:
        """Start the warden and the template without imports now, so that the first process starts sooner."""
        self._have_template(())

    def start(self, segment: "Segment", spec: "WorkerSpec", threads: int, imports: Sequence[str] = ()) -> None:
        """Start the worker of a placement group, and do not wait until it runs.

        Args:
            segment: the run's shared memory.
            spec: what the process has to do.
            threads: as in ``start_function``.
            imports: as in ``start_function``.

        Raises:
            ResourceError: as ``start_function``.
        """
        told = in_a_file(pickle.dumps(sys.path) + pickle.dumps(spec))
        try:
            group = spec.placement.group
            self.start_function(group, WORKER, [segment.nbytes], (segment.fd, told), threads=threads, imports=imports)
        finally:
            os.close(told)

    def start_function(
        self,
        name: str,
        entry: str,
        numbers: Sequence[int],
        descriptors: Sequence[int],
        *,
        threads: int,
        imports: Sequence[str] = (),
    ) -> None:
        """Start a process that runs a function, and do not wait until it runs.

        Args:
            name: of the process.
            entry: its "module:function"; see ``ask_for``.
            numbers: the function's first arguments.
            descriptors: that it inherits; their numbers are the next arguments. The caller may close them.
            threads: most threads of numerical libraries.
            imports: modules that take long to import. One template imports them for all processes that name the same.

        Raises:
            ResourceError: the system refuses another process. ``exits`` may tell this later.
        """
        variables = {**environment(threads), GROUP: name.encode()}
        key = self._have_template(imports)
        self.ask_for(name, entry, numbers, variables, descriptors, template=key)

    def _have_template(self, imports: Sequence[str]) -> str:
        """The key of the template that has imported these modules. Starts that template at the first call."""
        key = " ".join(imports)
        if FORKS and key not in self._templates:
            self._templates.add(key)
            self._ask("template", key, python(TEMPLATE, *imports), environment(1))
        return key

    def stacks(self, groups: Sequence[str]) -> dict[str, str]:
        """Group -> the stacks of all threads of its process. Waits half a second for the answers of all."""
        running = [group for group in groups if group in self._pids]
        for group in running:
            self._ask("signal", group, int(STACKS_SIGNAL))
        if running:
            time.sleep(STACKS_WAIT_S)
        return {group: self._stacks(group) for group in groups}

    def _stacks(self, group: str) -> str:
        # Race: a process may end after the caller has seen that it runs.
        if group not in self._pids:
            return "It has ended."
        return self._said(group) or "It did not say where it stands."
