"""The commit record: what it keeps of the latest episodes, and of their metrics."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from penstock.config.episode_metrics import episode_metrics
from penstock.metrics.episode_metrics import metrics_in, reported
from penstock.metrics.report import RETURN_WINDOW
from penstock.nodes.learner.record import begin_anew, fill_learned_from_table, record_specs
from penstock.program.rollout import fields_beside_return, rollout_specs
from penstock.types import Arrays, ArraySpec, Box, Discrete, Spaces

SPACES = Spaces((("obs", Box((1,), "float32", (0.0,), (1.0,))),), Discrete(2))
SPEC: Any = SimpleNamespace(state=(), policy=SimpleNamespace(carry=()))
BESIDE = fields_beside_return(("won", "laps"), shaped=True)
METRICS = episode_metrics(("won", "laps"))
STEPS = 4


def zeros(specs: tuple[ArraySpec, ...]) -> Arrays:
    return {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}


def new_record() -> Arrays:
    record = zeros(record_specs(SPEC, 2, 1, beside_return=BESIDE))
    begin_anew(record)
    return record


def rollout(first_lane: int, ends: dict[int, tuple[float, float, float]]) -> Arrays:
    """A rollout of one lane: step of an episode's end -> own return, won and laps."""
    slot = zeros(rollout_specs(SPACES, (), STEPS, 1, same_step=True, beside_return=BESIDE))
    slot["first_lane"][...], slot["valid"][:STEPS] = first_lane, True
    slot["episode_count"][...] = len(ends)
    for place, (t, numbers) in enumerate(sorted(ends.items())):
        slot["terminated"][t] = True
        for field, number in zip(BESIDE, numbers, strict=True):
            slot[field][place] = number
    return slot


def after(record: Arrays, *rollouts: Arrays) -> Arrays:
    new = {name: values.copy() for name, values in record.items()}
    fill_learned_from_table(new, record, rollouts)
    return new


def test_metrics_are_kept_in_the_order_in_which_their_episodes_ended() -> None:
    # By time: lane 1 at step 0, lane 0 at step 1, lane 1 at step 3.
    lanes = rollout(0, {1: (2.0, 1.0, 20.0)}), rollout(1, {0: (1.0, np.nan, 10.0), 3: (3.0, 0.0, 30.0)})
    found = after(new_record(), *lanes)
    assert found["episodes"] == 3
    assert found["shaped_returns"][-3:].tolist() == [1.0, 2.0, 3.0]
    assert found["episode_metric.laps"][-3:].tolist() == [10.0, 20.0, 30.0]
    np.testing.assert_array_equal(found["episode_metric.won"][-3:], [np.nan, 1.0, 0.0])


def test_a_mean_is_over_the_latest_episodes_that_have_the_metric() -> None:
    # The 97 places before these episodes hold no episode yet, and one episode has no ``won``.
    found = after(new_record(), rollout(0, {0: (0.0, 1.0, 1.0), 1: (0.0, np.nan, 2.0), 2: (0.0, 0.0, 6.0)}))
    assert reported(METRICS, metrics_in(found)) == {"won": 0.5, "laps": 3.0}
    for _ in range(RETURN_WINDOW // 2):
        found = after(found, rollout(0, {0: (0.0, 1.0, 0.0), 1: (0.0, 1.0, 1.0)}))
    assert reported(METRICS, metrics_in(found)) == {"won": 1.0, "laps": 0.5}


def test_a_metric_that_no_episode_had_has_no_mean() -> None:
    assert reported(METRICS, metrics_in(new_record())) == {}
    found = after(new_record(), rollout(0, {0: (0.0, np.nan, 5.0)}))
    assert reported(METRICS, metrics_in(found)) == {"laps": 5.0}
