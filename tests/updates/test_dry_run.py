"""What ships passes a dry run on all its kinds of spaces, so that one is only needed for users' algorithms.

What a dry run finds stands in ``tests/end_to_end/test_mistakes_in_own_algorithm.py``.
"""

import pytest

from penstock.algorithm_lookup import find_algorithm
from penstock.planning.specs import spec_of
from penstock.program.rollout import rollout_specs
from penstock.types import Box, Composite, Discrete, MultiDiscrete, Spaces, Stack
from penstock.updates.dry_run import UNITS, dry_run
from penstock.updates.settings import UpdaterSettings

VECTOR = ("obs", Box((3,), "float32", (1.0,), (2.0,)))
FIELDS = (("action_mask", Box((4,), "uint8", (0.0,), (1.0,))), ("obs", Discrete(5, 2)))
IMAGE = ("obs", Box((4, 36, 36), "uint8", (0.0,), (255.0,), Stack(4, "zero")))
BOUNDED, FREE = Box((2,), "float32", (-1.0,), (1.0,)), Box((2,), "float32", (-float("inf"),), (float("inf"),))
MASKED = Spaces(FIELDS, Discrete(4), "action_mask")
SEVERAL = Composite(((("a",), Discrete(2)), (("b",), BOUNDED)))


@pytest.mark.parametrize(
    ("algo", "spaces", "settings"),
    [
        *((algo, MASKED, {}) for algo in ("ppo", "a2c", "a3c", "impala", "appo", "dqn", "apex", "r2d2", "bc")),
        *((algo, Spaces((VECTOR,), BOUNDED), {}) for algo in ("sac", "dsac", "dsact", "td3", "ddpg")),
        ("ppo", Spaces((VECTOR,), SEVERAL), {"normalize_obs": True, "normalize_value": True}),
        ("ppo", Spaces((VECTOR,), MultiDiscrete((2, 3), (0, 1), (2,), "int64")), {"model": "lstm"}),
        *((algo, Spaces((IMAGE,), Discrete(3)), {"num_steps": 3}) for algo in ("ppo", "bc")),
        ("impala", Spaces((VECTOR,), FREE), {"model": "gru", "normalize_value": True}),
        ("appo", Spaces((VECTOR,), FREE), {"model": "gru"}),
        ("bc", Spaces((VECTOR,), FREE), {"held_out": 0.0, "optimizer": "muon"}),
        ("dqn", Spaces((VECTOR,), Discrete(3)), {"prioritised": True, "n_step": 3, "dueling": True}),
        ("sac", Spaces((VECTOR,), BOUNDED), {"model": "lstm"}),
    ],
)
def test_what_ships_gives_what_its_spec_says(algo, spaces, settings) -> None:
    package = find_algorithm(algo)
    config = package.config(**{"num_steps": 8, **settings})
    spec = spec_of(package, spaces, config)
    slot = rollout_specs(spaces, spec.row, config.num_steps, UNITS, same_step=True, carry=spec.policy.carry)
    dry_run(algo, package.initial, UpdaterSettings(package.learn, config, spec, spaces, "cpu", 1, seed=0), slot)
