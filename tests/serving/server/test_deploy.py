"""The files of ``deploy/`` name only what exists."""

import configparser
import json
import re
import shlex
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.config.commands import ServeOptions
from penstock.config.flags import options_from_arguments
from tests.serving.server.harness import serving

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_the_dashboard_names_only_metrics_that_exist() -> None:
    with serving() as server:
        metrics = server.server._service.metrics
        metrics.request("gamecore-tcp", 200, 0.001)
        page, _ = metrics.page("text/plain")
    exist = {sample.name for family in text_string_to_metric_families(page.decode()) for sample in family.samples}
    board = json.loads((DEPLOY / "grafana.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"(?:penstock|process)_\w+", target["expr"])
    }
    assert len(asked) >= 12
    assert asked <= exist


def test_a_histogram_counts_as_prometheus_does() -> None:
    with serving() as server:
        for rows in (1, 2, 2, 3, 2000):
            server.endpoint.stable.batch_rows.add(rows)
        page = server.server._service.metrics.page("text/plain")[0].decode()
    found = re.findall(r'penstock_batch_rows_bucket\{le="([^"]+)",policy="toy",version="7"\} (\S+)', page)
    buckets = dict(found)
    assert (buckets["1.0"], buckets["2.0"], buckets["4.0"], buckets["1024.0"], buckets["+Inf"]) == (
        *("1.0", "3.0", "4.0", "4.0", "5.0"),
    )
    assert 'penstock_batch_rows_sum{policy="toy",version="7"} 2008.0' in page


@pytest.mark.parametrize("file", ["unit", "container"])
def test_the_commands_have_flags_that_exist(file: str) -> None:
    if file == "unit":
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read(DEPLOY / "penstock-serve.service")
        words = shlex.split(unit["Service"]["ExecStart"])
        assert float(unit["Service"]["TimeoutStopSec"]) > ServeOptions(policies=("x",)).grace_seconds
    else:
        lines = (DEPLOY / "Containerfile").read_text()
        listed = re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", lines, re.MULTILINE)
        words = [word for line in listed for word in json.loads(line)]
    options = options_from_arguments(ServeOptions, words[words.index("serve") + 1 :])
    assert options.port == 8000
    assert options.token_file
