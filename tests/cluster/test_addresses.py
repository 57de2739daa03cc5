"""A cluster that is not there is one line, at once."""

import pytest

import penstock
from penstock.errors import ConfigError
from penstock.runtime.ray.cluster import joined


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at --address 127.0.0.1:9: .*refused"),
        ("nonsense", "--address nonsense: write auto, or host:port"),
        ("127.0.0.1:port", "write auto, or host:port"),
    ],
)
def test_no_cluster(address: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal, joined(address):
        pass
    assert "\n" not in str(refusal.value)


def test_a_run_without_its_cluster_leaves_no_folder(tmp_path) -> None:
    settings = {"env": "Pendulum-v1", "runtime": "ray", "address": "127.0.0.1:9", "log_dir": str(tmp_path / "logs")}
    with pytest.raises(ConfigError, match="no Ray cluster answers"):
        penstock.train(settings, quiet=True)
    assert not (tmp_path / "logs").exists()
