"""The time limit of an environment that no supervisor watches."""

import signal
import threading
import time

import gymnasium
import numpy as np
import pytest

from penstock.envs.deadline import deadline
from penstock.envs.sources import probe
from penstock.errors import EnvError
from tests.environments import TargetEnv

pytestmark = pytest.mark.timeout(60, method="thread")
"""Without these marks the alarm would be the test runner's own."""


def test_what_takes_too_long_is_broken_off_by_its_name() -> None:
    with pytest.raises(EnvError, match=r"^sleeping takes more than 0\.05 s$"), deadline(0.05, "sleeping"):
        time.sleep(60)


def test_what_ends_in_time_leaves_the_alarm_as_it_was() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with deadline(60, "nothing"):
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_alarm_of_somebody_else_is_left_alone() -> None:
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with deadline(0.01, "waiting"):
            time.sleep(0.2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert rung == [True]


def test_other_threads_go_without_a_limit() -> None:
    ended = []

    def run() -> None:
        with deadline(0.01, "waiting"):
            time.sleep(0.05)
        ended.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ended == [True]


class StuckEnv(TargetEnv):
    """Its reset never comes back."""

    closed = False

    def reset(self, **_: object):
        time.sleep(60)

    def close(self) -> None:
        type(self).closed = True


class ClingingEnv(gymnasium.Env):
    """It cannot be closed."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_: object):
        return np.zeros(1, np.float32), {}

    def close(self) -> None:
        raise OSError("held")


def test_an_environment_whose_reset_hangs_is_refused() -> None:
    with pytest.raises(EnvError, match=r"resetting environment .*StuckEnv takes more than 0\.1 s"):
        probe(f"{__name__}:StuckEnv", reset_limit_s=0.1)
    assert not StuckEnv.closed


def test_an_environment_that_cannot_be_closed_is_refused_in_one_line() -> None:
    with pytest.raises(EnvError, match=r"ClingingEnv cannot be closed: OSError: held$"):
        probe(f"{__name__}:ClingingEnv")
