"""What the cores take from one report of a run to the next, worked out by hand."""

import pytest

from benchmarks.busy_cores import BusyCores, Sample, between_reports

LOG = b"first\n2\n3\n4\n5\n"
"""Its reports end at bytes 6, 8, 10, 12, 14."""


def test_work_between_reports() -> None:
    samples = [Sample(0, 1.0), Sample(6, 2.0), Sample(8, 3.0), Sample(10, 5.0), Sample(12, 6.0), Sample(14, 60.0)]
    # From the report behind number 1, at byte 8, to the last but one: two reports and three seconds. What comes behind
    # the last report is the end of the run.
    assert between_reports(samples, LOG, 1) == pytest.approx(3.0 / 2)
    with pytest.raises(RuntimeError, match="too few reports"):
        between_reports(samples, LOG, 3)


def test_it_reads_the_log_of_the_run_that_begins(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="too few reports"), BusyCores(tmp_path) as cores:
        cores.a_report(LOG, 1)
