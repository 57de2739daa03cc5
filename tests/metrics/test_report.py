"""Reports in the slots of their stream."""

import numpy as np
import pytest

from penstock.config.settings.stepping import MOST_EPISODE_METRICS
from penstock.metrics.episode_metrics import EPISODE, EVAL_EPISODE
from penstock.metrics.report import Report, read_report, report_specs, write_report


@pytest.mark.parametrize("sign", ["x", "速", "\N{CHEQUERED FLAG}", "\N{GRINNING FACE}", '"', "\x01"])
@pytest.mark.parametrize("prefix", [EPISODE, EVAL_EPISODE])
def test_the_longest_names_of_metrics_find_room_in_any_script(prefix, sign) -> None:
    named = {f"{prefix}{index:02}{62 * sign}": -0.1234567890123456 for index in range(MOST_EPISODE_METRICS)}
    others = {f"loss/of_a_long_name_{index:02}": 1.2345678901234567e-10 for index in range(40)}
    report = Report(10**9, 10**12, 1e6 / 3, {**named, **others}, returns=(1.0, 2.0))
    slot = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in report_specs(2)}
    write_report(report, slot)
    assert read_report(slot) == report
