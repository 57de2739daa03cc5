"""Starts the worker processes of a run, forked from templates where it can.

A worker reads what it is to do from a file, and inherits file descriptors. Decides nothing about a run.
"""

import os
import pickle
import sys
import time
from collections.abc import Sequence

from penstock.memory.segment import Segment
from penstock.processes import template
from penstock.processes.template import GROUP
from penstock.processes.warded import Warded, environment, in_a_file, python
from penstock.processes.worker import COMMAND, STACKS_SIGNAL, WorkerSpec

__all__ = ["SHARED", "Processes"]

FORKS = sys.platform == "linux"
"""Whether templates fork processes. Other systems have no subreaper, and their libraries do not survive a fork."""
SHARED = ("gymnasium",)
"""Modules that every template imports beside penstock's own, if this process has imported them."""
STACKS_WAIT_S = 0.5


class Processes(Warded):
    """The processes of a run, by the name of their placement group."""

    def __init__(self) -> None:
        super().__init__()
        self._templates: set[str] = set()
        self._have_template(())

    def start(self, segment: Segment, spec: WorkerSpec, threads: int, imports: Sequence[str] = ()) -> None:
        """Start the process of a placement group, and do not wait until it runs.

        Args:
            segment: the run's shared memory.
            spec: what the process has to do.
            threads: at most so many threads for numerical libraries.
            imports: modules that take long to import. One template imports them for all processes that name the same.

        Raises:
            ResourceError: the system refuses another process. ``exits`` may raise this later.
        """
        group = spec.placement.group
        told = in_a_file(pickle.dumps(sys.path) + pickle.dumps(spec))
        variables = {**environment(threads), GROUP: group.encode()}
        try:
            key = self._have_template(imports)
            self.begin(group, python(COMMAND), [segment.nbytes], variables, (segment.fd, told), template=key)
        finally:
            os.close(told)

    def _have_template(self, imports: Sequence[str]) -> str:
        """The key of the template that has imported these modules. Starts that template at the first call."""
        key = " ".join(imports)
        if FORKS and key not in self._templates:
            self._templates.add(key)
            shared = (name for name in SHARED if name in sys.modules)
            self._ask("template", key, python(template.COMMAND, *shared, *imports), environment(1))
        return key

    def stacks(self, group: str) -> str:
        """The stacks of all threads of a process. Waits half a second for its answer."""
        self._ask("signal", group, int(STACKS_SIGNAL))
        time.sleep(STACKS_WAIT_S)
        return self._said(group) or "It did not say where it stands."
