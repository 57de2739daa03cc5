"""Altered files of a run folder: a reader refuses them in one line, or reads the original content.

``make fuzz`` runs this for long.
"""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.config.sources import from_mapping, from_toml, to_toml
from penstock.errors import UsageError
from penstock.metrics.jsonl import JsonLines, read_reports
from penstock.metrics.report import Report
from penstock.saved_runs.checkpoints import load_checkpoint, save_checkpoint
from penstock.saved_runs.manifest import write_manifest

FACTS = {"env": "X", "spaces": "Box", "algorithm": "ppo", "steps": 100, "update": 1}
ARRAYS = {"actor": np.arange(50, dtype=np.float32), "update": np.array(1), "empty": np.zeros((0, 3))}
FUZZED = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)

FILE_FACTS = st.fixed_dictionaries({"bytes": JSON, "sha256": JSON}) | st.fixed_dictionaries({"bytes": JSON})
NUMBERS = st.integers() | st.floats() | st.booleans() | st.just(10**400)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Name -> content of every file that is altered here."""
    run = tmp_path_factory.mktemp("pristine")
    path = save_checkpoint(run, ARRAYS, FACTS)
    log = JsonLines(run)
    for update in range(1, 4):
        log.write(Report(update, 100 * update, 0.5 * update, {"loss/policy": 0.1 * update, "loss/kl": float("nan")}))
    log.close()
    return {
        "manifest.json": (path / "manifest.json").read_bytes(),
        "state.safetensors": (path / "state.safetensors").read_bytes(),
        "metrics.jsonl": (run / "metrics.jsonl").read_bytes(),
        "config.toml": to_toml(from_mapping({"env": "X"})).encode(),
    }


@st.composite
def alterations(draw: st.DrawFn) -> list[tuple[float, int, bytes]]:
    """Offset in the file, number of removed bytes, bytes that take their place."""
    return draw(
        st.lists(st.tuples(st.floats(0, 1), st.integers(0, 64), st.binary(max_size=24)), min_size=1, max_size=4)
    )


def altered(content: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for share, count, new in changes:
        start = int(share * len(content))
        content = content[:start] + new + content[start + count :]
    return content


def load(path: Path) -> None:
    """Load a checkpoint: either refused in one line, or the arrays that were saved."""
    try:
        loaded = load_checkpoint(path)
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    for name, values in ARRAYS.items():
        np.testing.assert_array_equal(loaded.arrays[name], values)


@FUZZED
@given(name=st.sampled_from(["manifest.json", "state.safetensors"]), changes=alterations())
def test_a_checkpoint(pristine, tmp_path, name, changes):
    path = tmp_path / "checkpoints" / "update-00000001"
    path.mkdir(parents=True, exist_ok=True)
    for each in ("manifest.json", "state.safetensors"):
        (path / each).write_bytes(altered(pristine[each], changes) if each == name else pristine[each])
    load(path)


@FUZZED
@given(
    facts=st.dictionaries(st.sampled_from([*FACTS, "format", "kind", "return_mean"]), JSON, max_size=3)
    | st.fixed_dictionaries({"files": st.fixed_dictionaries({"state.safetensors": JSON | FILE_FACTS}) | JSON})
)
@example(facts={"files": {"state.safetensors": {"bytes": "\n"}}})
def test_a_manifest_that_is_signed_but_says_anything(pristine, tmp_path, facts):
    path = tmp_path / "checkpoints" / "update-00000001"
    path.mkdir(parents=True, exist_ok=True)
    (path / "state.safetensors").write_bytes(pristine["state.safetensors"])
    whole = json.loads(pristine["manifest.json"])
    del whole["manifest_sha256"]
    (path / "manifest.json").write_bytes(signed({**whole, **facts}))
    load(path)


def signed(body: dict) -> bytes:
    """A manifest with any content and a correct hash of itself."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return json.dumps({**body, "manifest_sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()


def test_signing_is_what_the_manifest_does():
    files = {"state.safetensors": b"x"}
    body = json.loads(write_manifest(FACTS, files))
    whole = dict(body)
    del body["manifest_sha256"]
    assert json.loads(signed(body)) == whole


@FUZZED
@given(content=st.binary(max_size=300))
def test_a_state_whose_hash_is_right_but_that_holds_anything(tmp_path, content):
    path = tmp_path / "checkpoints" / "update-00000001"
    path.mkdir(parents=True, exist_ok=True)
    (path / "state.safetensors").write_bytes(content)
    (path / "manifest.json").write_bytes(write_manifest(FACTS, {"state.safetensors": content}))
    with pytest.raises(UsageError, match=r"^[^\n]*$"):
        load_checkpoint(path)


@FUZZED
@given(changes=alterations())
def test_the_metrics(pristine, tmp_path, changes):
    (tmp_path / "metrics.jsonl").write_bytes(altered(pristine["metrics.jsonl"], changes))
    read_reports(tmp_path)
    JsonLines(tmp_path, 2).close()
    assert all(report.update <= 2 for report in read_reports(tmp_path))


@FUZZED
@given(
    lines=st.lists(
        st.fixed_dictionaries({"update": NUMBERS, "steps": NUMBERS, "time_s": NUMBERS, "x": NUMBERS | JSON}) | JSON,
        max_size=4,
    )
)
def test_metrics_that_say_anything(tmp_path, lines):
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(json.dumps(line).encode() for line in lines))
    read_reports(tmp_path)
    JsonLines(tmp_path, 2).close()


@FUZZED
@given(changes=alterations())
def test_the_config(pristine, tmp_path, changes):
    (tmp_path / "config.toml").write_bytes(altered(pristine["config.toml"], changes))
    try:
        from_toml(tmp_path / "config.toml")
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017
