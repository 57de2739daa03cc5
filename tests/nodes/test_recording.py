"""What a policy was given and what it answered while greedy episodes were played."""

import numpy as np
import pytest

from penstock.nodes.evaluation import INPUT, OUTPUT, PlaySettings, record
from penstock.seeding import final_seed
from tests.environments import ClockEnv
from tests.planned import prepared


def settings_for(lanes: int, **settings: object):
    found = prepared(runtime="inline", **settings)
    initial = {spec.name: np.ones(spec.shape, spec.dtype) / 10 for spec in found.spec.published()}
    played = PlaySettings(
        env=found.env,
        vector=False,
        ignore_obs=(),
        spaces=found.profile.spaces,
        policy=found.spec.policy,
        backend=found.inference,
        lanes=lanes,
        seed=5,
        bad_numbers="stop",
        work_limit_s=60.0,
    )
    return played, initial


def test_rows_of_all_lanes_stand_one_after_the_other() -> None:
    """The clock shows steps / 20, so two lanes show 0, 0, 1/20, 1/20, 2/20."""
    found = record(*settings_for(2), 5, 60.0)
    np.testing.assert_allclose(found[f"{INPUT}obs"][:, 0], [0.0, 0.0, 0.05, 0.05, 0.1])
    assert found.keys() == {f"{INPUT}obs", *(f"{OUTPUT}{name}" for name in ("action", "log_prob", "value"))}
    assert {values.shape[0] for values in found.values()} == {5}


def test_the_carry_of_a_row_is_the_one_before_its_answer() -> None:
    """The next carry of a lane is what its next row begins with; an episode of four steps begins anew."""
    env = {"env": "tests.environments:BlinkEnv", "model": "gru", "memory_size": 4, "share_memory": True}
    found = record(*settings_for(1, **env), 9, 60.0)
    (name,) = (name for name in found if name.startswith(f"{INPUT}carry."))
    before, after = found[name], found[name.replace(INPUT, OUTPUT)]
    assert found[f"{INPUT}first"].tolist() == [True, False, False, False] * 2 + [True]
    np.testing.assert_array_equal(before[1:], after[:-1])
    assert before[1].any()


def test_episodes_have_the_seeds_of_an_evaluation() -> None:
    """The sign of an episode comes from its seed alone."""
    env = {"env": "tests.environments:BlinkEnv"}
    found = record(*settings_for(1, **env), 12, 60.0)
    signs = found[f"{INPUT}obs"][::4, 0]
    wanted = [
        2 * int(np.random.Generator(np.random.PCG64(final_seed(5, number))).integers(2)) - 1 for number in range(3)
    ]
    assert signs.tolist() == wanted


def test_an_environment_that_cannot_be_closed_loses_no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def stuck(env: ClockEnv) -> None:
        closed.append(env)
        raise OSError("the renderer is gone already")

    settings, initial = settings_for(1)
    monkeypatch.setattr(ClockEnv, "close", stuck)
    assert record(settings, initial, 5, 60.0)[f"{INPUT}obs"].shape[0] == 5
    assert len(closed) == 1
