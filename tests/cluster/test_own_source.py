"""Machines with the same version of penstock and other code are told apart."""

from pathlib import Path

from penstock.cluster.own_source import digest_of, own_digest


def test_only_python_files_count(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for package in (one, other):
        (package / "nodes").mkdir(parents=True)
        (package / "nodes" / "env.py").write_text("STEPS = 1\n")
    assert digest_of(one) == digest_of(other)
    # What Python compiles, and native modules of another build.
    (one / "__pycache__").mkdir()
    (one / "__pycache__" / "env.cpython-311.pyc").write_bytes(b"compiled")
    (one / "_native.cpython-311.so").write_bytes(b"native")
    assert digest_of(one) == digest_of(other)
    (one / "nodes" / "env.py").write_text("STEPS = 2\n")
    assert digest_of(one) != digest_of(other)
    (one / "nodes" / "env.py").rename(one / "env.py")
    (other / "nodes" / "env.py").write_text("STEPS = 2\n")
    assert digest_of(one) != digest_of(other)


def test_the_own_code_is_read_once() -> None:
    assert own_digest() == own_digest()
    assert own_digest.cache_info().currsize == 1
