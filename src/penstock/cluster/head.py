"""HeadWatch: a thread of the launcher that ends the run in order if Ray's head is lost.

Ray itself ends every process that is joined to it some time after its head is lost, without a word to the run: the
launcher after `penstock.cluster.HEADLESS_S`, those of other machines after a minute.
"""

import time
from collections.abc import Callable

from penstock.cluster.door import Door
from penstock.cluster.launcher_thread import LauncherThread

__all__ = ["HeadWatch"]

LOOK_S = 1.0
ALARM_S = 10.0
"""After so much silence a checkpoint is asked for."""
SILENCE_S = 40.0
"""After so much silence the run ends. A head with storage outside the cluster may be back by then. The last
checkpoint is written before Ray ends this process."""
LATE_S = 5.0
"""If the watch looks so much later than the last time, its own process stood still meanwhile."""


class HeadWatch(LauncherThread):
    """The thread.

    Args:
        address: of the head, as ``host:port``.
        want_checkpoint: ask the run for a checkpoint.
        lost: called with the reason if the run must end.
        advice: how the user goes on then, for the end of the reason.
    """

    def __init__(
        self, address: str, want_checkpoint: Callable[[], None], lost: Callable[[str], None], advice: str
    ) -> None:
        super().__init__("head watch")
        self._address = address
        self._want_checkpoint = want_checkpoint
        self._lost = lost
        self._advice = advice

    def _run(self) -> None:
        head, heard, alarmed = Door.at(self._address), time.monotonic(), False
        looked = heard
        while not self._over.wait(LOOK_S):
            now = time.monotonic()
            # While this process itself stood still it knocked at no door.
            heard += max(0.0, now - looked - LATE_S)
            looked = now
            if head.opens():
                heard, alarmed = now, False
            elif now - heard > SILENCE_S:
                self._lost(
                    f"Ray's head at {self._address} has been silent for {SILENCE_S:.0f} s, so the cluster is lost; "
                    f"{self._advice}"
                )
                return
            elif now - heard > ALARM_S and not alarmed:
                self._want_checkpoint()
                alarmed = True
