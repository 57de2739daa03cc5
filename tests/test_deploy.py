"""The files of ``deploy/``, and ``environment.nix.yml``, fit what they name. Nothing of them is started."""

import itertools
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from penstock.config.commands import ServeOptions
from penstock.config.flags import options_from_arguments, train_from_arguments

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def trained(command: str):
    """The config of a command that trains, and the options besides it."""
    words = shlex.split(command)
    assert words[:2] == ["penstock", "train"]
    options, config, _ = train_from_arguments(words[2:])
    return config.run, options


def test_a_run_on_kubernetes_uses_the_cluster_that_is_made_for_it() -> None:
    import ray

    job, claim = documents("kuberay.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    run, options = trained(job["spec"]["entrypoint"])
    # A second launch goes on with the run of the first one.
    assert options.run_name is not None
    assert options.resume_if_exists
    assert (run.runtime, run.address) == ("ray", "auto")
    assert cluster["rayVersion"] == ray.__version__, "the version of constraints.txt"
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    image = (DEPLOY / "Containerfile.train").read_text()
    # Its server takes the job, and answers KubeRay's probes.
    assert "'ray[default]'" in image
    (user,) = re.findall(r"useradd .*--uid (\d+)", image)
    for pod in (group["template"]["spec"] for group in groups):
        assert pod["securityContext"] == {"fsGroup": int(user)}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounts == {"runs": run.log_dir, "shared-memory": "/dev/shm"}
        assert volumes["runs"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    # All pods have the claim: another machine may go on with the run.
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_file_of_the_cluster_launcher_is_one_by_rays_own_schema() -> None:
    jsonschema, ray = pytest.importorskip("jsonschema"), pytest.importorskip("ray")
    text = (DEPLOY / "ray-cluster.yaml").read_text()
    schema = json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text())
    (cluster,) = documents("ray-cluster.yaml")
    jsonschema.validate(cluster, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(cluster | {"head_node": "head"}, schema)
    assert cluster["head_node_type"] in cluster["available_node_types"]
    (command,) = re.findall(r"^#   ray exec \S+ '([^']+)'$", text, re.MULTILINE)
    run, _ = trained(command)
    assert (run.runtime, run.address) == ("ray", "auto")


def test_the_containers_of_compose_find_each_other_and_their_files() -> None:
    services = documents("compose.yaml")[0]["services"]
    build = services["penstock"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    published, inside = services["penstock"]["ports"][0].split(":")
    container = (DEPLOY / "Containerfile").read_text()
    words = [
        word
        for line in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", container, re.MULTILINE)
        for word in json.loads(line)
    ]
    options = options_from_arguments(ServeOptions, words[words.index("serve") + 1 :])
    assert int(inside) == int(published) == options.port
    assert float(services["penstock"]["stop_grace_period"].rstrip("s")) > options.grace_seconds
    # What is mounted is in this folder, or what the user puts there.
    mounted = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())]
    beside = {Path(name).name for name in mounted if name.startswith("./")}
    assert beside == {"prometheus.yml", "token"}
    ((scraped,),) = (part["targets"] for part in documents("prometheus.yml")[0]["scrape_configs"][0]["static_configs"])
    assert scraped == f"penstock:{options.port}"


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.train"])
def test_images_install_extras_that_exist(name: str) -> None:
    extras = project()["project"]["optional-dependencies"]
    (asked,) = re.findall(r"'/source\[(\w+)\]'", (DEPLOY / name).read_text())
    assert asked in extras


def test_the_environment_file_has_what_make_install_does_not_bring() -> None:
    text = (ROOT / "environment.nix.yml").read_text()
    environment, about = yaml.safe_load(text), project()["project"]
    tools = dict(tool.split("=") for tool in environment["dependencies"])
    assert set(tools) == {"python", "cxx-compiler", "make"}
    assert SpecifierSet(about["requires-python"]).contains(tools["python"])
    assert f"Programming Language :: Python :: {tools['python']}" in about["classifiers"]
    # The commands above it name this environment and the same Python, and run a target that installs the rest.
    named, python = environment["name"], tools["python"].replace(".", "")
    (target,) = set(re.findall(r"\bmake ([a-z]+)", text)) - {"install"}
    assert f" micromamba create -f environment.nix.yml && micromamba run -n {named} make {target}\n" in text
    assert f" nix-shell -p python{python} gcc gnumake --run 'make {target}'\n" in text
    assert f"\n{target}: install " in (ROOT / "Makefile").read_text()
    assert named == about["name"]


def test_what_make_install_brings_is_pinned_to_a_version_that_pyproject_allows() -> None:
    about = project()
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    extras = itertools.chain(*about["project"]["optional-dependencies"].values())
    named = [*about["build-system"]["requires"], *about["project"]["dependencies"], *extras]
    asked = [one for one in map(Requirement, named) if one.name != about["project"]["name"]]
    assert {one.name for one in asked} >= {"torch", "nanobind", "ray"}
    refused = [str(one) for one in asked if not one.specifier.contains(versions[canonicalize_name(one.name)])]
    assert refused == []
