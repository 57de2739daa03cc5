"""Gradients with respect to named flat vectors."""

import torch

from penstock.torch_networks.gradients import gradients_of


def test_by_hand_and_without_touching_the_state():
    # d/da (a . b + 3 a . a) = b + 6 a; c is not asked for.
    state = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0, 4.0]), "c": torch.tensor([1.0])}
    found, extra = gradients_of(lambda s: (s["a"] @ s["b"] + 3.0 * s["a"] @ s["a"], "extra"), state, ["a", "b"])
    assert {name: value.tolist() for name, value in found.items()} == {"a": [9.0, 16.0], "b": [1.0, 2.0]}
    assert extra == "extra"
    assert not state["a"].requires_grad


def test_works_where_gradients_are_off():
    with torch.no_grad():
        found, _ = gradients_of(lambda s: (s["a"].square().sum(), None), {"a": torch.tensor([3.0])}, ["a"])
    assert found["a"].tolist() == [6.0]
