"""For every algorithm: the gradients of a minibatch's parts, averaged by weight, are those of the whole minibatch."""

import numpy as np
import pytest
import torch

from penstock.algorithm_lookup import find_algorithm
from penstock.ops.losses import mean_by
from penstock.registry import ALGORITHMS, load
from penstock.updates.inbox import in_parts
from tests.algorithms.replay_rows import CONTINUOUS, DISCRETE, minibatch_of, noise_of, random, state_of

SIZE, PARTS = 24, 3
WEIGHT = torch.tensor([1.0] * 16 + [1.0, 1.0] + [0.0] * 6, dtype=torch.float64)
"""The last part of eight rows has two that count."""


def stream_rows(spaces, spec):
    """Rows as a stream gives them, with targets."""
    generator = torch.Generator().manual_seed(3)
    rows = {
        name: random(generator, SIZE) for name in ("log_prob", "proximal_log_prob", "advantage", "importance", "target")
    }
    rows["obs"] = random(generator, SIZE, 3)
    rows["action"] = random(generator, SIZE, 2) if spaces is CONTINUOUS else torch.arange(SIZE) % 3
    return {name: rows[name] for name in spec.minibatch}


CASES = [
    (name, spaces, settings)
    for name in ALGORITHMS.names()
    for kind, spaces in (("discrete", DISCRETE), ("bounded", CONTINUOUS))
    if name != "impala" and kind in find_algorithm(name).actions  # It learns from whole lanes, see below.
    for settings in (
        {},
        *({"atoms": 5}, {"prioritised": True}) * (name in {"dqn", "apex"}),
        *({"model": "gru"},) * (name == "sac"),
        *({"kl_coef": 0.5, "kl_target": 0.01},) * (name in {"ppo", "appo"}),
        *({"kl_coef": 0.5, "target_every": 3},) * (name == "appo"),
    )
]


@pytest.mark.parametrize(("name", "spaces", "settings"), CASES)
def test_gradients_and_losses_of_parts_average_to_those_of_the_whole(name, spaces, settings):
    found = find_algorithm(name)
    config = found.config(hidden_sizes=(5, 4), **settings)
    spec, built = load(found.spec)(spaces, config), load(found.learn)(spaces, config)
    state = state_of(load(found.initial)(spaces, config, 1))
    rows = stream_rows(spaces, spec) if spec.table is None else minibatch_of(spaces, spec, SIZE)
    # Sequences have a weight for each of their rows.
    rows["weight"] = WEIGHT if spec.unit == "row" else WEIGHT.unsqueeze(1) * rows["weight"]
    rows |= built.across_minibatch(rows, mean_by(rows["weight"]))
    for phase in built.phases:
        noise = noise_of(phase, SIZE)
        whole = phase.gradients(state, rows, noise)
        parts = in_parts(rows, PARTS)
        noises = in_parts(noise, PARTS) if noise else [{}] * PARTS
        each = [phase.gradients(state, part, noise) for part, noise in zip(parts, noises, strict=True)]
        shares = [float(part["weight"].sum() / rows["weight"].sum()) for part in parts]
        assert np.allclose(shares, [8 / 18, 8 / 18, 2 / 18])
        for key, gradient in whole.gradients.items():
            mean = sum(share * one.gradients[key] for share, one in zip(shares, each, strict=True))
            torch.testing.assert_close(mean, gradient, rtol=1e-9, atol=1e-12)
        # Of a norm, parts have a mean of their own.
        for key in whole.metrics.keys() - {"grad_norm"}:
            mean = sum(share * one.metrics[key] for share, one in zip(shares, each, strict=True))
            torch.testing.assert_close(mean, whole.metrics[key], rtol=1e-9, atol=1e-12)
        for key, values in whole.per_row.items():
            torch.testing.assert_close(torch.cat([one.per_row[key] for one in each]), values)


@pytest.mark.parametrize("name", ["ppo", "a2c", "appo"])
def test_advantages_are_normalised_over_the_rows_that_count(name):
    """By hand: 1, 3 and 5 have the mean 3 and the deviation sqrt(8/3); the row of weight 0 counts for neither."""
    found = find_algorithm(name)
    rows = {"advantage": torch.tensor([1.0, 3.0, 5.0, 99.0]), "weight": torch.tensor([1.0, 1.0, 1.0, 0.0])}
    # APPO's are weighed behind that.
    rows["importance"] = torch.ones(4)
    changed = load(found.learn)(DISCRETE, found.config(normalize_advantage=True)).across_minibatch(
        rows, mean_by(rows["weight"])
    )
    assert set(changed) == {"advantage"}
    assert changed["advantage"][:3].tolist() == pytest.approx([-2 / (8 / 3) ** 0.5, 0.0, 2 / (8 / 3) ** 0.5])
    plain = load(found.learn)(DISCRETE, found.config(normalize_advantage=False))
    left = plain.across_minibatch(rows, mean_by(rows["weight"]))
    assert {**rows, **left}["advantage"].tolist() == [
        1.0,
        3.0,
        5.0,
        99.0,
    ]


@pytest.mark.parametrize(
    ("algo", "model"), [("ppo", "lstm"), ("a2c", "lstm"), ("impala", "lstm"), ("impala", "mlp"), ("appo", "gru")]
)
def test_parts_of_whole_lanes_average_to_the_minibatch_by_the_rows_that_count(algo, model):
    lanes, steps = 6, 5
    found = find_algorithm(algo)
    memory = {} if model == "mlp" else {"memory_size": 3}
    config = found.config(hidden_sizes=(4,), model=model, num_steps=steps, **memory)
    spec, built = load(found.spec)(DISCRETE, config), load(found.learn)(DISCRETE, config)
    assert spec.unit == "lane"
    generator = torch.Generator().manual_seed(3)
    per_row = ("advantage", "importance", "target", "proximal_log_prob", "bootstrap", "size")
    rows = {name: random(generator, lanes, steps) for name in per_row}
    rows |= {name: torch.rand(lanes, steps + 1, generator=generator) < 0.1 for name in ("terminated", "truncated")}
    rows["reward"] = random(generator, lanes, steps + 1)
    rows |= {part.name: random(generator, lanes, *part.shape) for part in spec.policy.carry}
    rows |= {"obs": random(generator, lanes, steps + 1, 3), "log_prob": random(generator, lanes, steps + 1)}
    rows["action"] = torch.arange(lanes * (steps + 1)).view(lanes, -1) % 3
    rows["first"] = torch.rand(lanes, steps + 1, generator=generator) < 0.3
    assert rows.keys() >= set(spec.minibatch)
    # Rows that are not valid, and a lane of padding: the parts have 9, 8 and 5 rows that count.
    rows["weight"] = torch.ones(lanes, steps, dtype=torch.float64)
    rows["weight"][0, 2] = rows["weight"][2, 0] = rows["weight"][3, 4] = 0.0
    rows["weight"][5] = 0.0
    rows |= built.across_minibatch(rows, mean_by(rows["weight"]))
    (phase,) = built.phases
    state = state_of(load(found.initial)(DISCRETE, config, 1))
    whole = phase.gradients(state, rows, {})
    parts = in_parts(rows, 3)
    shares = [float(part["weight"].sum() / 22) for part in parts]
    assert np.allclose(shares, [9 / 22, 8 / 22, 5 / 22])
    for key, gradient in whole.gradients.items():
        mean = sum(
            share * phase.gradients(state, part, {}).gradients[key] for share, part in zip(shares, parts, strict=True)
        )
        torch.testing.assert_close(mean, gradient, rtol=1e-9, atol=1e-12)
