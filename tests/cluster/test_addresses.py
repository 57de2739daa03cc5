"""A cluster that is not there is one line, at once."""

import contextlib
import os
import platform
import socket
from collections.abc import Iterator

import pytest
import ray
from ray._private import services
from ray._private.utils import check_version_info

import penstock
from penstock.cluster.connection import joined
from penstock.errors import ConfigError, NoClusterError, PenstockError


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster was started on this machine; none that somebody else has started is seen."""
    monkeypatch.setattr("penstock.cluster.asked_cluster.utils.read_ray_address", lambda: None)
    monkeypatch.setattr(services, "_find_address_from_flag", lambda flag: set())


@contextlib.contextmanager
def noted_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Ray has noted a cluster whose processes run here, and something listens at its address. Gives the address."""
    with socket.create_server(("127.0.0.1", 0)) as head:
        noted = f"127.0.0.1:{head.getsockname()[1]}"
        monkeypatch.setattr("penstock.cluster.asked_cluster.utils.read_ray_address", lambda: noted)
        monkeypatch.setattr(services, "_find_address_from_flag", lambda flag: {noted})
        yield noted


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at --address 127.0.0.1:9: .*refused"),
        ("nonsense", "--address nonsense: write auto, local, or host:port"),
        ("ray://127.0.0.1:10001", "--address ray://127.0.0.1:10001: write host:port, and begin the run on a machine"),
        ("127.0.0.1:port", "write auto, local, or host:port"),
        ("127.0.0.1:99999", "--address 127.0.0.1:99999: there is no port 99999; ports are 1 to 65,535"),
        ("127.0.0.1:0", "there is no port 0;"),
        (f"{'a' * 64}:6379", "a is no name of a machine; write host:port"),
    ],
)
def test_no_cluster(address: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=says) as refusal, joined(address):
        pass
    assert "\n" not in str(refusal.value)
    assert "Errno" not in str(refusal.value)
    # Ray takes the variable where no address is given, and in place of auto.
    monkeypatch.setenv("RAY_ADDRESS", address)
    says = says.replace("--address ", "RAY_ADDRESS=")
    for left_out in (None, "auto"):
        with pytest.raises(ConfigError, match=says), joined(left_out):
            pass


@pytest.mark.parametrize("address", [":6379", "127.0.0.1", "127.0.0.1:99999", "ray://127.0.0.1:10001"])
def test_how_an_address_is_written_is_checked_with_the_other_settings(address: str) -> None:
    # No environment is opened before.
    with pytest.raises(ConfigError, match=rf"^--address {address}: (write|there is no port 99999)"):
        penstock.from_mapping({"env": "Pendulum-v1", "runtime": "ray", "address": address})
    for known in ("auto", "local", "localhost:6379", "[::1]:6379"):
        assert penstock.from_mapping({"env": "Pendulum-v1", "runtime": "ray", "address": known}).run.address == known


def test_ray_that_does_not_start_in_time_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(**_: object) -> None:
        raise Exception("The current node timed out during startup. Ray says why.")  # noqa: TRY002 - as Ray does

    monkeypatch.setattr(ray, "init", slow)
    says = (
        "^Ray does not start on this machine: The current .* Ray says why; the machine may be busy: try again, or type"
    )
    with pytest.raises(PenstockError, match=says):
        joined("local").__enter__()


@pytest.mark.parametrize("address", ["local", None])
def test_ray_that_does_not_start_is_not_a_cluster_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("no memory is left. Ray has advice.")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(
        NoClusterError, match=r"^Ray does not start on this machine: no memory is left; the machine may"
    ):
        joined(address).__enter__()


def test_a_head_that_only_its_loopback_device_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ray puts the machine's own address in place of 127.0.0.1. It would try for two minutes, and take no signal.
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.2")
        says = rf"^--address 127\.0\.0\.1:{port}: the head listens on the loopback .* at 127\.0\.0\.2:{port};"
        with pytest.raises(ConfigError, match=says), joined(f"127.0.0.1:{port}"):
            pass


def test_a_cluster_of_which_nothing_is_left_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # A cluster that crashed is still noted. Something else may answer at its address.
    with socket.create_server(("127.0.0.1", 0)) as other:
        noted = f"127.0.0.1:{other.getsockname()[1]}"
        monkeypatch.setattr("penstock.cluster.asked_cluster.utils.read_ray_address", lambda: noted)
        says = f"Ray cluster was started on this machine and does not answer: Ray has noted {noted}, and no process of"
        with pytest.raises(NoClusterError, match=says), joined(None):
            pass
        asked: list[str | None] = []
        monkeypatch.setattr(ray, "init", lambda address, **_: asked.append(address))
        monkeypatch.setattr(ray, "shutdown", lambda: None)
        monkeypatch.setattr(services, "_find_address_from_flag", lambda flag: {noted})
        with joined(None):
            pass
        assert asked == [None]


def test_a_head_whose_processes_are_seen_and_which_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    # So in a container that shares this machine's processes and not its network: Ray would try for two minutes.
    monkeypatch.setattr(services, "_find_address_from_flag", lambda flag: {"127.0.0.1:9"})
    # The cluster may have ended, or be in a container.
    says = r"^Ray's processes run on this machine, and their head at 127\.0\.0\.1:9 is not reached: Connection refused;"
    with pytest.raises(NoClusterError, match=says), joined("auto"):
        pass
    monkeypatch.setattr("penstock.cluster.asked_cluster.utils.read_ray_address", lambda: "127.0.0.1:9")
    for left_out in (None, "auto"):
        with pytest.raises(NoClusterError, match=says), joined(left_out):
            pass


def test_a_noted_cluster_goes_before_one_of_several_that_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(ray, "init", lambda address, **_: asked.append(address))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with noted_cluster(monkeypatch) as noted:
        monkeypatch.setattr(services, "_find_address_from_flag", lambda flag: {noted, "127.0.0.1:9"})
        with joined("auto"):
            pass
    assert asked == ["auto"]


def test_an_address_that_is_given_goes_before_the_variable_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(ray, "init", lambda address, **_: asked.append(address))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with joined("local"):
        pass
    monkeypatch.setenv("RAY_ADDRESS", "local")
    for left_out in (None, "auto"):
        with joined(left_out):
            pass
    # An empty variable counts for nothing.
    monkeypatch.setenv("RAY_ADDRESS", "")
    with joined(None):
        pass
    assert asked == ["local", "local", "local", None]


@pytest.mark.parametrize(
    ("address", "variable", "where"),
    [
        (None, "", "of this machine"),
        ("auto", "", "at --address auto"),
        ("127.0.0.1:{port}", "", "at --address 127.0.0.1:{port}"),
        (None, "127.0.0.1:{port}", "at RAY_ADDRESS=127.0.0.1:{port}"),
    ],
)
def test_a_cluster_with_other_versions_says_which_both_have(
    monkeypatch: pytest.MonkeyPatch, address: str | None, variable: str, where: str
) -> None:
    def refuse(**_: object) -> None:
        check_version_info({"ray_version": "2.9.0", "python_version": "3.8.7"}, "node 10.0.0.1")

    monkeypatch.setattr(ray, "init", refuse)
    with socket.create_server(("", 0)) as head:
        port = str(head.getsockname()[1])
        monkeypatch.setenv("RAY_ADDRESS", variable.replace("{port}", port))
        with pytest.raises(ConfigError) as refusal:
            joined(None if address is None else address.replace("{port}", port)).__enter__()
    assert str(refusal.value) == (
        f"the Ray cluster {where.replace('{port}', port)} has Python 3.8.7 and Ray 2.9.0, and this machine has Python "
        f"{platform.python_version()} and Ray {ray.__version__}; install the same versions on all machines"
    )


def test_an_error_of_the_second_try_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str | None, **_: object) -> None:
        raise ValueError("settings of a new cluster") if address is None else RuntimeError("Ray says\nno")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    says = r"^a Ray cluster was started on this machine and does not answer: no; "
    with noted_cluster(monkeypatch), pytest.raises(ConfigError, match=says):
        joined(None).__enter__()


def test_a_cluster_that_asks_for_a_token_says_what_to_type(monkeypatch) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("Failed to connect")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"own; if it is there .*: --address auto, or set RAY_AUTH_MODE=token$"):
            joined(address).__enter__()
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        with pytest.raises(ConfigError, match=r"it may ask for another token than this machine has$"):
            joined(address).__enter__()
        monkeypatch.delenv("RAY_AUTH_MODE")
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, match=rf"^no Ray cluster answers at RAY_ADDRESS={address}: .* token: set RAY_"):
            joined(None).__enter__()


def test_what_is_left_of_a_cluster_is_told_apart_from_an_address(monkeypatch) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("Failed to connect")

    monkeypatch.setattr(ray, "init", refuse)
    says = "^a Ray cluster was started on this machine and does not answer: Failed to connect; --address local starts"
    with noted_cluster(monkeypatch), pytest.raises(ConfigError, match=says):
        joined(None).__enter__()


def test_of_what_ray_says_only_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise ConnectionError("Could not find any running Ray instance. Please set the `--address` flag.")

    monkeypatch.setattr(ray, "init", refuse)
    says = "^no Ray cluster answers at --address auto: Could not find any running Ray instance; `ray start --head`"
    with pytest.raises(ConfigError, match=says):
        joined("auto").__enter__()


def test_a_resume_without_its_cluster_is_offered_this_machine(tmp_path) -> None:
    small = {"env": "CartPole-v1", "num_envs": 2, "num_steps": 32, "mini_batch_size": 32, "eval_episodes": 0}
    run = penstock.train({**small, "runtime": "inline", "timesteps": 64, "log_dir": str(tmp_path)}, quiet=True)
    away = {"runtime": "ray", "address": "127.0.0.1:9"}
    with pytest.raises(penstock.NoClusterError, match=r"^no Ray cluster answers .* own; --runtime local goes on with"):
        penstock.resume(run.run_folder, timesteps=128, settings=away, quiet=True)


def test_a_run_without_its_cluster_leaves_no_folder(tmp_path) -> None:
    settings = {"env": "Pendulum-v1", "runtime": "ray", "address": "127.0.0.1:9", "log_dir": str(tmp_path / "logs")}
    with pytest.raises(ConfigError, match="no Ray cluster answers"):
        penstock.train(settings, quiet=True)
    assert not (tmp_path / "logs").exists()


def test_the_environment_of_the_program_is_as_it_was_after_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[tuple[str | None, str | None]] = []
    names = ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
    monkeypatch.setenv(names[0], "1")
    monkeypatch.delenv(names[1], raising=False)
    monkeypatch.setattr(ray, "init", lambda **_: during.append((os.environ[names[0]], os.environ[names[1]])))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with joined("local"):
        pass
    # What the user has set counts.
    assert during == [("1", "0")]
    assert (os.environ[names[0]], os.environ.get(names[1])) == ("1", None)
