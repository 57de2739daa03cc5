"""The benchmark of V-trace at its smallest: who acts with which parameters, and what the learner is told."""

import numpy as np
import torch

from benchmarks.vtrace import LANES, SPACES, Lagging, final_return
from penstock.algorithms.impala.spec import IMPALAConfig, init_state, spec
from penstock.program.rollout import rollout_specs

CONFIG = IMPALAConfig(num_steps=5)


def test_the_parameters_that_act_are_so_many_updates_old() -> None:
    play = Lagging(2, CONFIG, 0)
    for version in range(5):
        play.publish({"actor": np.full(1, version), "critic": np.full(1, version)})
        assert int(play._versions[0]["actor"]) == max(0, version - 2)


def test_a_rollout_has_every_row_and_the_values_behind_its_ends() -> None:
    torch.set_num_threads(1)
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
    returns = [final_return(3, corrects, 4 * LANES * 20, 1e-3, 0) for corrects in (True, False)]
    assert all(value > 0.0 for value in returns)
