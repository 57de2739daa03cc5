"""What is judged of a cluster's soak. Namespaces are made by the soak only."""

import math
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from benchmarks.soak.cluster_seen import ENVIRONMENT, INTERRUPTED, OBJECTS, WATCHED, Watched, bars_of, called
from benchmarks.soak.measures import Sample
from benchmarks.soak.processes import Held, Process
from benchmarks.soak.remains import Remains, holds_memory

MINUTES = 10
NOTHING = Remains(processes=0, holders=0, files=0, store_bytes=0)
HOLDERS, STORE = "processes that still hold memory of the run", "bytes left in Ray's object stores"
STATUS = "exit code, apart from that of an interrupt"


def grown(name: str, mb_a_minute: float, minutes: float = MINUTES, pid: int = 1) -> dict[Process, list[Sample]]:
    """One process, sampled every second."""
    looks = [
        Sample(float(second), None, Held(100.0 + mb_a_minute * second / 60.0, 0.0, 10, 5))
        for second in range(int(60 * minutes))
    ]
    return {Process(pid, 0, name): looks}


def values(watched: Watched) -> dict[str, float]:
    return {bar.name: bar.value for bar in bars_of(watched, MINUTES)}


def test_the_steepest_process_of_each_kind_is_judged() -> None:
    samples = grown("raylet on penstock-0", 0.1, pid=1) | grown("raylet on penstock-1", 2.0, pid=2)
    found = values(Watched(samples | grown("launcher on penstock-0", -1.0, pid=3), status=INTERRUPTED))
    assert found["memory of raylet: MB a minute"] == pytest.approx(2.0)
    assert found["memory of launcher: MB a minute"] == pytest.approx(-1.0)
    assert math.isnan(found["memory of deputy: MB a minute"])


def test_a_process_that_lived_for_a_part_of_the_time_is_not_judged() -> None:
    found = values(Watched(grown("raylet on penstock-2", 5.0, minutes=3)))
    assert math.isnan(found["memory of raylet: MB a minute"])


def test_of_environment_processes_the_median_over_their_lives_is_judged() -> None:
    samples: dict[Process, list[Sample]] = {}
    for pid, growth in enumerate((0.1, 0.2, 9.0)):
        samples |= grown(f"{ENVIRONMENT} on penstock-1", growth, minutes=5, pid=pid)
    # Too short a life: a minute of warm-up, and two more.
    samples |= grown(f"{ENVIRONMENT} on penstock-2", 50.0, minutes=3, pid=7)
    found = values(Watched(samples))
    assert found[f"memory of {ENVIRONMENT}: MB a minute"] == pytest.approx(0.2)
    assert math.isnan(values(Watched())[f"memory of {ENVIRONMENT}: MB a minute"])


def test_objects_in_stores_are_judged_as_the_memory_of_a_process() -> None:
    found = values(Watched(grown(OBJECTS, 3.0, pid=0)))
    assert found[f"memory of {OBJECTS}: MB a minute"] == pytest.approx(3.0)


def test_forked_processes_are_known_by_their_names_and_others_by_their_commands() -> None:
    def process(name: str, command: str) -> SimpleNamespace:
        return SimpleNamespace(name=lambda: name, cmdline=command.split)

    assert called(process("env.3", "python template")) == ENVIRONMENT
    assert called(process("learner", "python template")) == "learner"
    assert called(process("learner.1", "python template")) is None
    assert called(process("ray::Host", "ray::Host.collect")) == WATCHED["ray::Host"]
    assert called(process("python", "python -m penstock.something")) is None


def test_a_process_that_holds_memory_of_a_run_is_found() -> None:
    text = (
        "import os; print(flush=True); input(); held = os.memfd_create('penstock-test'); print(flush=True); input(); "
        "os.close(held); print(flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        process, found = psutil.Process(it.pid), []
        for _ in range(3):
            it.stdout.readline()
            found.append(holds_memory(process))
            it.stdin.write("\n")
            it.stdin.flush()
    assert found == [False, True, False]
    assert not holds_memory(process)


def test_every_bar_has_a_name_of_its_own() -> None:
    names = [bar.name for bar in bars_of(Watched(left=NOTHING), MINUTES)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("watched", "short"),
    [
        (Watched(status=INTERRUPTED, left=NOTHING), set()),
        (Watched(status=INTERRUPTED, left=NOTHING._replace(processes=1)), {"processes that are left"}),
        (Watched(status=INTERRUPTED, left=NOTHING._replace(holders=1)), {HOLDERS}),
        (Watched(status=INTERRUPTED, left=NOTHING._replace(files=1)), {"files in /dev/shm that are left"}),
        (Watched(status=INTERRUPTED, left=NOTHING._replace(store_bytes=64)), {STORE}),
        (Watched(status=INTERRUPTED, left=NOTHING._replace(store_bytes=math.inf)), {STORE}),
        (Watched(status=INTERRUPTED, left=NOTHING, unbalanced=1), {"reports whose rows do not add up"}),
        (Watched(status=1), {STATUS}),
        (Watched(status=139, left=NOTHING), {STATUS}),
    ],
)
def test_what_is_left_or_does_not_add_up_falls_short(watched: Watched, short: set[str]) -> None:
    assert {bar.name for bar in bars_of(watched, MINUTES) if not (bar.holds or math.isnan(bar.value))} == short
