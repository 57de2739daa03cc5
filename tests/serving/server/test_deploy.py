"""The files of ``deploy/`` name only what exists."""

import configparser
import json
import re
import shlex
import urllib.request
from pathlib import Path

import pytest
import yaml
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
        words = listed("ENTRYPOINT") + listed("CMD")
    options = options_from_arguments(ServeOptions, words[words.index("serve") + 1 :])
    assert options.port == 8000
    assert options.token_file


def listed(instruction: str) -> list[str]:
    """The words of an instruction of the container file."""
    lines = (DEPLOY / "Containerfile").read_text()
    (words,) = re.findall(rf"^{instruction} (\[.*\])$", lines, re.MULTILINE)
    return json.loads(words)


def test_servers_on_kubernetes_have_the_ports_and_probes_that_are_asked_for() -> None:
    text = (DEPLOY / "kubernetes-serve.yaml").read_text()
    deployment, service, autoscaler = yaml.safe_load_all(text)
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    # ``args`` take the place of CMD.
    words = listed("ENTRYPOINT") + container["args"]
    options = options_from_arguments(ServeOptions, words[words.index("serve") + 1 :])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": options.port, "tcp": options.tcp_port, "grpc": options.grpc_port}
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
    with serving() as server:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] == "http"
            with urllib.request.urlopen(f"http://127.0.0.1:{server.http}{asked['path']}", timeout=120.0) as reply:
                assert reply.status == 200
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["spec"]["terminationGracePeriodSeconds"] > pause + options.grace_seconds
    # The folder that is served and the tokens are mounted, the tokens under the file's name in the secret.
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    (secret,) = re.findall(r"create secret generic (\S+) --from-file=token$", text, re.MULTILINE)
    assert mounts == {*options.policies, str(Path(options.token_file).parent)}
    assert Path(options.token_file).name == "token"
    assert secret in [volume.get("secret", {}).get("secretName") for volume in pod["spec"]["volumes"]]
    # All of them are about the same pods.
    labels = pod["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == labels
    target = autoscaler["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (deployment["kind"], deployment["metadata"]["name"])


def test_nginx_lets_pass_what_servers_take() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    (megabytes,) = re.findall(r"client_max_body_size (\d+)m;", text)
    assert int(megabytes) << 20 == ServeOptions(policies=("x",)).max_body
    # The port for clients is that of the servers, for each protocol.
    behind = {
        name: set(re.findall(r"server [\d.]+:(\d+) ", body))
        for name, body in re.findall(r"upstream (\w+) \{([^}]+)\}", text)
    }
    before = dict(re.findall(r"listen (\d+)[^}]+://(\w+);", text))
    assert {port: behind[name] for port, name in before.items()} == {"8000": {"8000"}, "8002": {"8002"}}
