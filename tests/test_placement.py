"""Where `auto` lets a policy act."""

import pytest

from penstock.planning import placement
from penstock.planning.placement import MARGIN, Measured, placed
from tests.planned import prepared


@pytest.mark.parametrize(
    ("parameters", "lanes", "place"),
    [
        (10_000, 8, "env"),
        (1_000_000, 8, "env"),
        (10_000, 64, "env"),
        (1_000_000, 64, "node"),
        # Nearer to the last row in powers of two: 2.3 and 1 of them, against 4.3 and 1.
        (200_000, 32, "node"),
        (50_000, 16, "env"),
        (10**9, 10_000, "node"),
        (1, 1, "env"),
    ],
)
def test_the_nearest_row_of_the_table_decides(monkeypatch, parameters: int, lanes: int, place: str) -> None:
    rows = [(10_000, 8, 0.2), (1_000_000, 8, MARGIN - 0.01), (10_000, 64, 0.9), (1_000_000, 64, MARGIN)]
    monkeypatch.setattr(placement, "MEASURED", tuple(Measured(*row) for row in rows))
    assert placed(parameters, lanes) == place


def test_small_mlps_act_in_place_and_the_run_records_it() -> None:
    for lanes in (1, 8, 64, 512):
        assert placed(9_155, lanes) == "env"
    assert prepared(env="CartPole-v1").config.run.policy_placement == "env"
    assert prepared(env="CartPole-v1", policy_placement="node").config.run.policy_placement == "node"


def test_only_what_was_measured_goes_to_a_node(monkeypatch) -> None:
    """Native policies, with environment processes on this machine."""
    monkeypatch.setattr(placement, "MEASURED", (Measured(10_000, 8, 2.0),))
    assert prepared(env="CartPole-v1").config.run.policy_placement == "node"
    for settings in ({"runtime": "inline"}, {"inference": "onnx"}):
        assert prepared(env="CartPole-v1", **settings).config.run.policy_placement == "env"


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"algo": "impala"}, "node"),
        ({"algo": "impala", "num_workers": 1}, "env"),
        ({"algo": "impala", "inference": "native"}, "env"),
        ({"algo": "impala", "policy_placement": "env"}, "env"),
        ({"algo": "impala", "runtime": "ray"}, "env"),
        # The bits of a row depend on the batch in which it is answered, and that depends on time.
        ({"algo": "ppo"}, "env"),
        # Each environment process has a learner, and with it a context on the GPU.
        ({"algo": "a3c"}, "env"),
    ],
)
def test_on_a_gpu_a_node_answers_for_all_processes_unless_the_run_is_in_lock_step(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], place: str
) -> None:
    monkeypatch.setattr("penstock.updates.devices.check", lambda device: None)
    run = prepared(**{"env": "CartPole-v1", "device": "cuda", "inference": "torch", "num_workers": 2, **settings})
    assert run.config.run.policy_placement == place


def test_sizes_of_batches_reach_torch_on_a_gpu_and_change_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.updates.devices.check", lambda device: None)
    on_gpu = {"env": "CartPole-v1", "device": "cuda", "inference": "torch", "pad_batches": [8, 64]}
    run = prepared(**on_gpu)
    assert run.inference.arguments[3:] == ("cuda", (8, 64))
    assert run.remarks == ()
    (said,) = prepared(**{**on_gpu, "inference": "native"}).remarks
    assert said == "--pad_batches changes nothing with --inference native: only batches of CUDA graphs are padded"
