"""Defaults are the papers' values, unless others did better on tasks on which those were not chosen."""

import pytest

from penstock.algorithms.ddpg.spec import DDPGConfig
from penstock.algorithms.dsac.spec import DSACConfig
from penstock.algorithms.dsact.spec import DSACTConfig
from penstock.algorithms.sac.spec import SACConfig
from penstock.algorithms.td3.spec import TD3Config

ALIKE = {"gamma": 0.99, "capacity": 1_000_000, "updates_per_step": 1.0, "lr_schedule": "constant"}
DUAN = {"lr": 1e-4, "critic_lr": 1e-4, "temperature_lr": 3e-4, "hidden_sizes": (256, 256, 256), "activation": "gelu"}
PAPERS = {
    # Haarnoja et al. 2018, table 1 of version 2.
    SACConfig: {"lr": 3e-4, "critic_lr": 3e-4, "temperature_lr": 3e-4, "hidden_sizes": (256, 256), "tau": 0.005},
    # Fujimoto et al. 2018, appendix C; the minibatch of their later code.
    TD3Config: {"lr": 1e-3, "critic_lr": 1e-3, "hidden_sizes": (400, 300), "mini_batch_size": 256, "exploration": 0.1},
    # Lillicrap et al. 2016, section 7.
    DDPGConfig: {"lr": 1e-4, "critic_lr": 1e-3, "hidden_sizes": (400, 300), "mini_batch_size": 64, "tau": 0.001},
    # Duan et al. 2025, and their code for both.
    DSACConfig: DUAN | {"tau": 0.005, "policy_delay": 2, "bound": 10.0},
    DSACTConfig: DUAN | {"tau": 0.005, "policy_delay": 2, "bound_scale": 3.0, "critics": 2},
}


@pytest.mark.parametrize("config", PAPERS, ids=lambda config: config.__name__)
def test_the_defaults_are_those_of_the_paper(config):
    defaults, paper = vars(config()), ALIKE | PAPERS[config]
    assert {name: defaults[name] for name in paper} == paper
