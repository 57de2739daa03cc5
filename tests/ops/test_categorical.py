"""Categorical returns against arithmetic by hand."""

import math

import pytest
import torch

from penstock.ops.categorical import cross_entropy, divergence, projected, support


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_atoms_lie_evenly():
    assert support(rows(0.0), -1.0, 1.0, 5).tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]


def test_projection_by_hand():
    # Atoms 0, 1, 2. Values 0.25, 1, 9: the first is shared 3/4 to 1/4, the last is cut to 2.
    found = projected(rows([0.4, 0.2, 0.4]), rows([0.25, 1.0, 9.0]), 0.0, 2.0)
    assert found[0].tolist() == pytest.approx([0.3, 0.1 + 0.2, 0.4])
    # Everything below the first atom is the first atom.
    assert projected(rows([0.5, 0.5]), rows([-3.0, -0.1]), 0.0, 2.0)[0].tolist() == pytest.approx([1.0, 0.0])


def test_a_projection_onto_its_own_atoms_changes_nothing_and_loses_nothing():
    generator = torch.Generator().manual_seed(0)
    probability = torch.softmax(torch.randn(6, 51, generator=generator, dtype=torch.float64), 1)
    z = support(probability, -10.0, 10.0, 51).expand(6, 51)
    torch.testing.assert_close(projected(probability, z, -10.0, 10.0), probability)
    moved = projected(probability, 0.3 + 0.9 * z, -10.0, 10.0)
    torch.testing.assert_close(moved.sum(1), torch.ones(6, dtype=torch.float64))
    # Within the bounds the mean is kept.
    torch.testing.assert_close(moved @ z[0], 0.3 + 0.9 * (probability @ z[0]))


def test_cross_entropy_and_divergence_by_hand():
    logits = torch.log(rows([0.5, 0.25, 0.25]))
    target = rows([0.0, 0.5, 0.5])
    # -log 1/4, less the entropy log 2 of the target.
    assert cross_entropy(target, logits).tolist() == pytest.approx([math.log(4.0)])
    assert divergence(target, logits).tolist() == pytest.approx([math.log(2.0)])
    assert divergence(rows([0.5, 0.25, 0.25]), logits).tolist() == pytest.approx([0.0])
