"""Runs a command of penstock, and ends it in order once the process that started it closes a pipe or is gone.

    python -m penstock.tune.tied DESCRIPTOR COMMAND ...

So a run writes its last checkpoint and leaves nothing, even if Ray or the system kills the process that follows it.
Imports no Ray.
"""

import os
import runpy
import signal
import sys
import threading


def _end_with(pipe: int) -> None:
    """Wait until the other end of the pipe is closed. Then end this process in order."""
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(int(sys.argv.pop(1)),), daemon=True).start()
    runpy.run_module("penstock", run_name="__main__", alter_sys=True)
