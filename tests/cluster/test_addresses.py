"""A cluster that is not there is one line, at once."""

import socket

import pytest
import ray

import penstock
from penstock.cluster.connection import joined
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at --address 127.0.0.1:9: .*refused"),
        ("nonsense", "--address nonsense: write auto, local, or host:port"),
        ("ray://127.0.0.1:10001", "--address ray://127.0.0.1:10001: write host:port, and begin the run on a machine"),
        ("127.0.0.1:port", "write auto, local, or host:port"),
    ],
)
def test_no_cluster(address: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal, joined(address):
        pass
    assert "\n" not in str(refusal.value)


def test_a_cluster_that_asks_for_a_token_says_what_to_type(monkeypatch) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("Failed to connect")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"without a token .*--address auto, or set RAY_AUTH_MODE=token"):
            joined(address).__enter__()


def test_what_is_left_of_a_cluster_is_told_apart_from_an_address(monkeypatch) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("Failed to connect")

    monkeypatch.setattr(ray, "init", refuse)
    says = "^a Ray cluster was started on this machine and does not answer: Failed to connect; --address local starts"
    with pytest.raises(ConfigError, match=says):
        joined(None).__enter__()


def test_a_run_without_its_cluster_leaves_no_folder(tmp_path) -> None:
    settings = {"env": "Pendulum-v1", "runtime": "ray", "address": "127.0.0.1:9", "log_dir": str(tmp_path / "logs")}
    with pytest.raises(ConfigError, match="no Ray cluster answers"):
        penstock.train(settings, quiet=True)
    assert not (tmp_path / "logs").exists()
