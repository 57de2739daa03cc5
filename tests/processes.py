"""What processes there are below one: a run's, and whether any is left."""

import psutil

__all__ = ["left_behind", "of_group"]


def left_behind() -> list[psutil.Process]:
    """The descendants of this process, but for the one that `multiprocessing` keeps to the end."""
    return [child for child in psutil.Process().children(recursive=True) if "resource_tracker" not in _command(child)]


def of_group(group: str, pid: int | None = None) -> psutil.Process | None:
    """The process of a placement group, of a run that this process or process ``pid`` has launched; the newest.

    The system calls it by its group if it was forked from the template; else its environment does, as that of its own
    children.
    """
    found = None
    for process in psutil.Process(pid).children(recursive=True):
        try:
            by_itself = "scheduler.worker" in _command(process) and process.environ().get("PENSTOCK_GROUP") == group
            if process.name() == group or by_itself:
                found = process
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
