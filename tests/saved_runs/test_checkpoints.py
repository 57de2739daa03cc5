import errno
import json
import os
import shutil
import traceback
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import CheckpointError, NodeError
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints, load_checkpoint, save_checkpoint, set_aside_after
from penstock.saved_runs.durable import sweep
from penstock.saved_runs.manifest import Damage, parse_manifest, write_manifest

FACTS = {"env": "Pendulum-v1", "spaces": "Box", "algorithm": "ppo", "steps": 100, "backend": "eager", "threads": 1}


def arrays(seed=0):
    generator = np.random.default_rng(seed)
    return {
        "actor": generator.standard_normal(50).astype(np.float32),
        "adam_step": np.array(seed, np.int64),
        "progress": np.array(0.1, np.float64),
        "lane_hash": np.array([2**64 - 1, 0], np.uint64),
        "valid": np.array([[True], [False]]),
        "empty": np.zeros((0, 3), np.float32),
        "transposed": np.arange(6.0).reshape(2, 3).T,
    }


def save(run, update, seed=0, **facts):
    return save_checkpoint(run, arrays(seed), {**FACTS, "update": update, **facts})


def refusal(path, expected=None):
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(path, expected)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_arrays_come_back_bit_for_bit(tmp_path):
    path = save(tmp_path, 50)
    assert path == tmp_path / "checkpoints" / "update-00000050"
    assert sorted(child.name for child in path.iterdir()) == ["manifest.json", "state.safetensors"]
    loaded = load_checkpoint(path)
    assert loaded.arrays.keys() == arrays().keys()
    for name, values in arrays().items():
        assert loaded.arrays[name].dtype == values.dtype
        assert loaded.arrays[name].shape == values.shape
        assert np.ascontiguousarray(loaded.arrays[name]).tobytes() == np.ascontiguousarray(values).tobytes()


def test_one_that_is_there_stays_unless_more_gradient_steps_were_taken_since(tmp_path):
    path = save(tmp_path, 50, seed=1, gradient_steps=7)
    before = {child.name: child.read_bytes() for child in path.iterdir()}
    assert save(tmp_path, 50, seed=2, gradient_steps=7) == path
    assert {child.name: child.read_bytes() for child in path.iterdir()} == before
    assert save(tmp_path, 50, seed=2, gradient_steps=9) == path
    assert int(load_checkpoint(path).arrays["adam_step"]) == 2
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_one_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    path = save(tmp_path, 50, seed=1, gradient_steps=7)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(CheckpointError, match="No space left"):
        save(tmp_path, 50, seed=2, gradient_steps=9)
    assert int(load_checkpoint(path).arrays["adam_step"]) == 1
    assert [child.name for child in path.parent.iterdir()] == [path.name]


def test_the_manifest_says_what_it_is(tmp_path):
    manifest = json.loads((save(tmp_path, 50) / "manifest.json").read_text())
    assert manifest["format"] == 3
    assert manifest["kind"] == "training"
    assert {name: manifest[name] for name in FACTS} == FACTS
    assert manifest["update"] == 50
    facts = manifest["files"]["state.safetensors"]
    assert facts["bytes"] == (tmp_path / "checkpoints/update-00000050/state.safetensors").stat().st_size
    assert len(facts["sha256"]) == 64
    assert "created" in manifest


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda path: (path / "state.safetensors").write_bytes(b""), "has 0 of"),
        (lambda path: os.truncate(path / "state.safetensors", 100), "has 100 of"),
        (lambda path: flip(path / "state.safetensors", 300), "state.safetensors has been altered"),
        (lambda path: (path / "state.safetensors").unlink(), "state.safetensors is missing"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda path: os.truncate(path / "manifest.json", 40), "manifest.json is not JSON"),
        (lambda path: (path / "manifest.json").write_text("[" * 100_000), "manifest.json is not JSON"),
        (lambda path: (path / "manifest.json").write_text("[1]"), "not a JSON object"),
        (lambda path: (path / "manifest.json").write_text(" " * (2 << 20)), "too long"),
        (lambda path: edit(path, "steps", 101), "manifest.json has been altered"),
        (lambda path: edit(path, "format", 4), "a newer penstock wrote; this one reads formats 1 to 3"),
        (lambda path: edit(path, "format", 0), "manifest.json has been altered"),
        (shutil.rmtree, "it does not exist"),
        (lambda path: swap_for_folder(path / "state.safetensors"), "cannot be read"),
    ],
)  # fmt: skip
def test_harm_is_named_and_the_line_ends_with_the_last_good_one(tmp_path, harm, says):
    run = tmp_path / "a run"
    for update in (10, 20, 30):
        save(run, update)
    flip(run / "checkpoints/update-00000020/state.safetensors", 300)
    harm(run / "checkpoints/update-00000030")
    text = refusal(run / "checkpoints/update-00000030")
    assert says in text
    assert text.endswith(f"penstock resume '{run}' --checkpoint update-00000010")


def test_the_line_says_so_where_no_good_one_is_left(tmp_path):
    flip(save(tmp_path, 1) / "state.safetensors", 200)
    assert refusal(tmp_path / "checkpoints/update-00000001").endswith("no other checkpoint of this run can either")


def test_a_checkpoint_of_another_environment_is_refused_for_one_that_fits(tmp_path):
    save(tmp_path, 1)
    other = save(tmp_path, 2, env="CartPole-v1")
    text = refusal(other, {"env": "Pendulum-v1", "algorithm": "ppo"})
    assert "its env is CartPole-v1, not Pendulum-v1" in text
    assert text.endswith("--checkpoint update-00000001")


def test_files_that_hash_right_but_are_no_safetensors(tmp_path):
    path = save(tmp_path, 1)
    for content in (b"", b"\xff" * 64, b"\x08\0\0\0\0\0\0\0{}      "[:-1]):
        (path / "state.safetensors").write_bytes(content)
        facts = {**FACTS, "update": 1}
        (path / "manifest.json").write_bytes(write_manifest(facts, {"state.safetensors": content}))
        assert "is not safetensors" in refusal(path)


def test_a_manifest_cannot_lead_out_of_its_folder(tmp_path):
    path = save(tmp_path, 1)
    content = write_manifest({**FACTS, "update": 1}, {"../../secret": b""})
    (path / "manifest.json").write_bytes(content)
    assert "does not list state.safetensors alone" in refusal(path)


def test_a_manifest_that_says_too_little(tmp_path):
    facts = {**FACTS, "update": 1}
    del facts["env"]
    with pytest.raises(Damage, match="has no env"):
        parse_manifest(write_manifest(facts, {}))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    run = tmp_path_factory.mktemp("fuzz")
    path = save(run, 1)
    return {name: (path / name).read_bytes() for name in ("manifest.json", "state.safetensors")}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["manifest.json", "state.safetensors"]), st.data())
def test_altered_files_are_refused_in_one_line_or_load_the_same(pristine, tmp_path, name, data):
    content = bytearray(pristine[name])
    start = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(start, min(len(content), start + 20)))
    content[start:stop] = data.draw(st.binary(max_size=20))
    path = tmp_path / "checkpoints" / "update-00000001"
    path.mkdir(parents=True, exist_ok=True)
    for each, original in pristine.items():
        (path / each).write_bytes(bytes(content) if each == name else original)
    try:
        loaded = load_checkpoint(path)
    except CheckpointError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert loaded.arrays.keys() == arrays().keys()
        assert all((loaded.arrays[key] == values).all() for key, values in arrays().items())


def test_saving_again_keeps_a_whole_one_and_replaces_a_damaged_one(tmp_path):
    path = save(tmp_path, 1, seed=0)
    save(tmp_path, 1, seed=5)
    assert load_checkpoint(path).arrays["adam_step"] == 0
    flip(path / "state.safetensors", 300)
    save(tmp_path, 1, seed=5)
    assert load_checkpoint(path).arrays["adam_step"] == 5


class Death(BaseException):
    """Stands for a kill: no code may clean up after it."""


def dying_at(monkeypatch, step):
    """Let the process die before its ``step``-th change of the disk; returns the list of changes that were made."""
    done = []

    def watched(owner, name):
        original = getattr(owner, name)

        def wrapper(*args, **kwargs):
            if len(done) == step:
                raise Death
            done.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapper)

    for name in ("mkdir", "rename", "open"):
        watched(Path, name)
    watched(os, "fsync")
    return done


def test_a_death_between_any_two_changes_of_the_disk_leaves_whole_checkpoints_only(tmp_path, monkeypatch):
    save(tmp_path / "rehearsal", 1)
    with monkeypatch.context() as patch:
        changes = dying_at(patch, -1)
        save(tmp_path / "rehearsal", 2)
    assert len(changes) >= 8
    for step in range(len(changes)):
        run = tmp_path / f"run-{step}"
        save(run, 1, seed=1)
        with monkeypatch.context() as patch:
            dying_at(patch, step)
            with pytest.raises(Death):
                save(run, 2, seed=2)
        # All listed checkpoints are whole, and the one before is still there.
        assert [int(load_checkpoint(path).arrays["adam_step"]) for path in list_checkpoints(run)] in ([1], [1, 2])
        sweep(run / "checkpoints")
        assert all(path in list_checkpoints(run) for path in (run / "checkpoints").iterdir())
        save(run, 2, seed=2)
        assert load_checkpoint(find_checkpoint(run)).arrays["adam_step"] == 2


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            CheckpointError, match=r"cannot write checkpoint .*update-00000002: No space left on device"
        ) as caught:
            save(tmp_path, 2)
    said = NodeError("monitor", "".join(traceback.format_exception(caught.value))).line
    assert said == str(caught.value)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["update-00000001"]


def test_continuing_from_an_earlier_one_sets_the_later_ones_aside(tmp_path):
    for update in (1, 2, 3):
        save(tmp_path, update)
    set_aside_after(tmp_path, 1)
    save(tmp_path, 3, seed=7)
    set_aside_after(tmp_path, 2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["update-00000001"]
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names[1:] == ["update-00000002.abandoned", "update-00000003.abandoned", "update-00000003.abandoned-2"]


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def edit(path, key, value):
    manifest = json.loads((path / "manifest.json").read_text())
    manifest[key] = value
    (path / "manifest.json").write_text(json.dumps(manifest))


def swap_for_folder(path):
    path.unlink()
    path.mkdir()
