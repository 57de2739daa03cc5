"""Bundles that are served: their samples are compared, and each version that the folder held is kept."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.config.commands import ServeOptions
from penstock.errors import BundleError, UsageError
from penstock.serving.bundle import SAMPLE, pack_sample, read_bundle, write_bundle
from penstock.serving.server.assembly import Assembly, limits_of
from penstock.serving.server.policy.acceptance import accepted
from penstock.serving.server.policy.copies import BundleCopies
from penstock.serving.server.policy.source import Source

LOADER = "penstock.run:load_policy"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder, for reading only."""
    small = {"num_envs": 2, "num_workers": 1, "num_steps": 16, "mini_batch_size": 16, "timesteps": 32}
    settings = {"env": "CartPole-v1", "hidden_sizes": (8,), "eval_episodes": 1, "runtime": "inline"}
    folder = tmp_path_factory.mktemp("logs")
    return penstock.train({**settings, **small, "log_dir": str(folder)}, quiet=True).run_folder


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle, for reading only."""
    return penstock.export(run, tmp_path_factory.mktemp("bundles") / "policy", observations=16)


def put(exported: Path, folder: Path, version: int) -> None:
    """Export the same policy as another version."""
    found = read_bundle(exported)
    write_bundle(folder, replace(found.facts, run={**found.facts.run, "update": version}), found.files)


def test_a_bundle_must_answer_its_sample_as_the_trained_network_did(exported: Path, tmp_path: Path) -> None:
    found, folder = read_bundle(exported), tmp_path / "policy"
    source = Source(LOADER, str(folder), None, 1)
    write_bundle(folder, found.facts, found.files)
    assert accepted(source).spaces.obs
    sample = found.sample()
    sample.outputs["action"][:4] = 1 - sample.outputs["action"][:4]
    write_bundle(folder, found.facts, {**found.files, SAMPLE: pack_sample(sample)})
    with pytest.raises(UsageError, match=r"does not answer its sample as the trained network did \(same action 75.00%"):
        accepted(source)
    (folder / SAMPLE).write_bytes(b"altered")
    with pytest.raises(BundleError):
        accepted(source)


def test_a_quantised_bundle_keeps_to_the_limits_that_are_given(run: Path, tmp_path: Path) -> None:
    folder = penstock.export(run, tmp_path / "policy", quantize="fp16", observations=16)
    found, source = read_bundle(folder), Source(LOADER, str(folder), None, 1)
    sample = found.sample()
    sample.outputs["action"][:4] = 1 - sample.outputs["action"][:4]
    write_bundle(folder, found.facts, {**found.files, SAMPLE: pack_sample(sample)})
    with pytest.raises(UsageError, match=r"same action 75.00%.*--quantized_agreement and --quantized_error say"):
        accepted(source)
    options = ServeOptions(policies=(str(folder),), quantized_agreement=0.75)
    assert accepted(source, limits_of(options).quantized).spaces.obs


def test_each_version_of_a_folder_is_copied_once(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    put(exported, folder, 3)
    copies = BundleCopies(LOADER, folder, tmp_path / "copies")
    first = copies.newest()
    assert (first.version, Path(first.path).name) == (3, "policy-3")
    assert copies.newest() is first
    put(exported, folder, 5)
    second = copies.newest()
    assert second.version == 5
    for source in (first, second):
        assert read_bundle(Path(source.path)).facts.run["update"] == source.version
        assert accepted(source).spaces.obs
    put(exported, folder, 3)
    assert copies.newest() == first


def test_a_bundle_that_is_replaced_while_it_is_read_is_one_of_the_two(exported: Path, tmp_path: Path) -> None:
    """Somebody exports into the folder before each of the reads in turn."""
    found, read_bytes = read_bundle(exported), Path.read_bytes

    def read(at: int) -> int:
        """Read the bundle, which is replaced before this read. Returns the number of reads."""
        folder, reads = tmp_path / str(at), 0
        write_bundle(folder, found.facts, {**found.files, SAMPLE: b"older"})

        def watched(path: Path) -> bytes:
            nonlocal reads
            if reads == at:
                write_bundle(folder, found.facts, {**found.files, SAMPLE: b"newer"})
            reads += 1
            return read_bytes(path)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Path, "read_bytes", watched)
            assert read_bundle(folder).files[SAMPLE] in {b"older", b"newer"}
        return reads

    for at in range(read(at=1_000)):
        read(at)


@pytest.mark.parametrize(("follow", "workers"), [(True, 0), (False, 1)])
def test_what_is_served_does_not_change_with_its_folder(
    exported: Path, tmp_path: Path, follow: bool, workers: int
) -> None:
    """A worker that is started again loads the policy once more."""
    folder = tmp_path / "policy"
    put(exported, folder, 3)
    options = ServeOptions(policies=(str(folder),), follow=follow, workers=workers)
    with contextlib.ExitStack() as stack:
        source = Assembly(options, {}, {})._origin(Source(LOADER, str(folder), None, 3), stack).first
        put(exported, folder, 5)
        assert read_bundle(Path(source.path)).facts.run["update"] == 3


def test_a_folder_that_is_damaged_or_gone_is_one_line(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    put(exported, folder, 3)
    copies = BundleCopies(LOADER, folder, tmp_path / "copies")
    copies.newest()
    put(exported, folder, 4)
    (folder / SAMPLE).write_bytes(b"altered")
    with pytest.raises(BundleError, match="cannot be used"):
        copies.newest()
    put(exported, folder, 4)
    assert copies.newest().version == 4
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match="cannot be read: No such file"):
        copies.newest()
