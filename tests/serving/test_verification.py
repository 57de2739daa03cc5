"""What ``penstock verify`` counts, against numbers that are worked out here."""

import json
import math

import numpy as np
import pytest

from penstock.serving.bundle import Port, Sample
from penstock.serving.verification import Limits, Report, Verification, compared
from penstock.types import Box, Composite, Discrete, Spaces

FIELDS = (("obs", Box((1,), "float32", (0.0,), (1.0,))),)


def found(space, wanted, given, limits: Limits, **results):
    names = list(wanted)
    outputs = [Port(name, "", (), "action") for name in names] + [Port(name, "", (), "result") for name in results]
    answers = {name: np.asarray(values) for name, values in given.items()}
    answers |= {name: np.asarray(pair[1]) for name, pair in results.items()}
    right = {name: np.asarray(values) for name, values in wanted.items()}
    right |= {name: np.asarray(pair[0]) for name, pair in results.items()}
    obs = {"obs": np.zeros((len(next(iter(right.values()))), 1), np.float32)}
    return compared(Sample(obs, right), answers, outputs, Spaces(FIELDS, space), limits)


def test_choices_agree_in_three_of_four_rows() -> None:
    wanted, given = {"action": [0, 1, 2, 2]}, {"action": [0, 1, 2, 0]}
    seen = found(Discrete(3), wanted, given, Limits(0.75, 0.0), q=([-4.0, 2.0, 1.0, 0.0], [-4.0, 2.5, 1.0, 0.0]))
    assert seen["passed"]
    assert seen["agreement"] == 0.75
    assert seen["action_error"] == 0.0
    # 2.5 - 2 is the largest difference, and 4 the largest value: 0.5 / 4.
    assert seen["absolute_error"]["q"] == 0.5
    assert seen["relative_error"]["q"] == 0.125
    assert not found(Discrete(3), wanted, given, Limits(0.76, 0.0))["passed"]


def test_numbers_are_judged_as_shares_of_their_range() -> None:
    """0.04 of a range of 4 is 1 %, 0.04 of a range of 1 is 4 %."""
    box = Box((2,), "float32", (-2.0, 0.0), (2.0, 1.0))
    wanted = {"action": [[0.0, 0.5]] * 4}
    given = {"action": [[0.04, 0.5], [0.0, 0.5], [0.0, 0.5], [0.0, 0.54]]}
    seen = found(box, wanted, given, Limits(1.0, 0.02))
    assert seen["action_error"] == pytest.approx(0.04)
    assert seen["agreement"] == 0.75
    assert not seen["passed"]
    assert found(box, wanted, given, Limits(1.0, 0.05))["passed"]


def test_without_bounds_the_range_is_that_of_the_answers_and_at_least_1() -> None:
    box = Box((2,), "float32", (-math.inf,), (math.inf,))
    wanted = {"action": [[-5.0, 0.1], [5.0, 0.1], [0.0, 0.1], [0.0, 0.2]]}
    given = {"action": [[-5.0, 0.1], [5.0, 0.1], [0.0, 0.1], [1.0, 0.25]]}
    # 1 of 10, and 0.05 of 1.
    assert found(box, wanted, given, Limits(1.0, 0.2))["action_error"] == pytest.approx(0.1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("wanted", [0.5, math.nan, math.inf])
@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bound", [1.0, math.inf])
def test_numbers_that_are_not_finite_do_not_pass(wanted: float, given: float, bound: float) -> None:
    box = Box((1,), "float32", (-bound,), (bound,))
    seen = found(box, {"action": [[0.5], [wanted]]}, {"action": [[0.5], [given]]}, Limits(0.0, 0.5))
    assert not seen["passed"]
    assert seen["action_error"] == math.inf
    assert seen["agreement"] == 0.5


@pytest.mark.filterwarnings("error")
def test_a_result_that_is_not_finite_passes_only_where_both_are_the_same_infinity() -> None:
    wanted = {"action": [0, 1]}
    for pair, passes in (
        (([-math.inf, 2.0], [-math.inf, 1.0]), True),
        (([math.nan, 2.0], [math.nan, 2.0]), False),
        (([-math.inf, 2.0], [0.0, 2.0]), False),
        (([1.0, 2.0], [math.nan, 2.0]), False),
    ):
        seen = found(Discrete(2), wanted, wanted, Limits(0.0, 0.5), log_prob=pair)
        assert seen["passed"] is passes
        assert seen["absolute_error"]["log_prob"] == (1.0 if passes else math.inf)
        assert seen["relative_error"]["log_prob"] == (0.5 if passes else math.inf)


def test_json_has_no_infinity() -> None:
    report = Report("onnx, CPU", "fp32", 0.0, math.inf, {"action": math.inf}, {"action": math.inf}, 8, {1: 2.0}, False)
    shown = json.loads(
        json.dumps(Verification("policy", "its own sample", 4, (report,), ()).to_json(), allow_nan=False)
    )
    assert shown["reports"][0]["action_error"] is None
    assert shown["reports"][0]["absolute_error"] == {"action": None}
    assert not shown["passed"]


def test_a_composite_agrees_where_all_its_leaves_do() -> None:
    space = Composite(((("how",), Box((), "float32", (0.0,), (10.0,))), (("which",), Discrete(2))))
    wanted = {"action.how": [1.0, 2.0, 3.0, 4.0], "action.which": [0, 1, 0, 1]}
    given = {"action.how": [1.0, 2.0, 3.0, 9.0], "action.which": [0, 0, 0, 1]}
    seen = found(space, wanted, given, Limits(0.75, 0.5))
    assert seen["agreement"] == 0.75
    assert seen["action_error"] == 0.5
    assert seen["passed"]
    strict = found(space, wanted, given, Limits(0.75, 0.4))
    assert strict["agreement"] == 0.5
    assert not strict["passed"]


def test_a_table_and_json_say_the_same() -> None:
    times = {1: 10.0, 8: 20.0, 64: 30.0}
    reports = (
        Report("native (trained)", "fp32", 1.0, 0.0, {}, {}, 2048, times, passed=True),
        Report("onnx, CPU", "int8", 0.5, 0.25, {"action": 1.0}, {"action": 0.25}, 1024, times, passed=False),
    )
    result = Verification("policy", "its own sample", 4, reports, ())
    assert not result.passed
    said, head, own, other, *advice = result.table().splitlines()
    assert advice[0].startswith("int8 is too coarse for this policy")
    assert said == "policy beside its own sample, on 4 observations"
    assert head.split("  ")[0] == "backend"
    assert own.split() == ["native", "(trained)", "fp32", "100.00%", "0", "0", "2.0", "KiB", "10", "20", "30"]
    assert other.split()[-5:] == ["KiB", "10", "20", "30", "FAILS"]
    assert "1.0e+00 in action" in other
    shown = json.loads(json.dumps(result.to_json()))
    assert shown["passed"] is False
    assert shown["reports"][1]["latency_us"]["64"] == 30.0
