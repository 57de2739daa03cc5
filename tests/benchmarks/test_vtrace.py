"""The benchmark of V-trace at its smallest: who acts with which parameters, and what the learner is told."""

import sys

import numpy as np
import pytest

from benchmarks.vtrace import LANES, POINTS, SPACES, Case, Lagging, check_lanes, curve, main
from penstock.algorithms.impala.spec import IMPALAConfig, init_state, spec
from penstock.program.rollout import rollout_specs

CONFIG = IMPALAConfig(num_steps=5)


def test_the_parameters_that_act_are_so_many_updates_old() -> None:
    play = Lagging(2, CONFIG, 0)
    for version in range(5):
        play.publish({"actor": np.full(1, version), "critic": np.full(1, version)})
        assert play._versions[0]["actor"].item() == max(0, version - 2)


def test_a_rollout_has_every_row_and_the_values_behind_its_ends() -> None:
    play = Lagging(0, CONFIG, 0)
    play.publish(init_state(SPACES, CONFIG, 0))
    specs = rollout_specs(SPACES, spec(SPACES, CONFIG).row, 5, LANES, same_step=True)
    slot = {part.name: np.zeros(part.shape, part.dtype) for part in specs}
    for _ in range(12):
        play.collect(slot)
    assert (slot["reward"][:5] == 1.0).all()
    assert (slot["log_prob"][:5] < 0.0).all()
    assert len(play.returns) > 0
    assert not slot["truncated"].any()


def test_a_run_with_and_without_the_correction() -> None:
    curves = [
        curve(Case(3, corrects, 20 * LANES * 5, 0, IMPALAConfig(num_steps=5, lr=0.1))) for corrects in (True, False)
    ]
    assert curves[0] != curves[1]
    for found in curves:
        assert len(found) == POINTS
        assert found[-1] > 0.0


def test_without_a_lag_there_is_nothing_to_correct() -> None:
    # With one minibatch for each batch, the policy that acted is the one that learns.
    config = IMPALAConfig(mini_batch_size=LANES * IMPALAConfig.num_steps)
    one, two = (curve(Case(0, corrects, 10 * LANES * config.num_steps, 0, config)) for corrects in (True, False))
    assert one == pytest.approx(two)


def test_a_wrong_size_of_minibatches_is_a_line_of_the_parser(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["vtrace", "--mini_batch_size", "60"])
    with pytest.raises(SystemExit):
        main()
    assert "do not make minibatches of 60 rows; give another --mini_batch_size" in capsys.readouterr().err


def test_minibatches_must_divide_the_lanes() -> None:
    with pytest.raises(ValueError, match="do not make minibatches of 60 rows"):
        check_lanes(IMPALAConfig(mini_batch_size=60))
