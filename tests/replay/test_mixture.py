import numpy as np
import pytest

from penstock.replay.mixture import Mixture


class Numbered:
    """Fills in its own number, and notes the arguments of each call."""

    def __init__(self, number: int) -> None:
        self.number, self.asked = number, []

    def sample(self, key, out, before=None, beta=0.0) -> None:
        self.asked.append((key, len(out["reward"]), before, beta))
        out["reward"][:] = self.number


def test_shares_that_are_whole() -> None:
    first, second = Numbered(1), Numbered(2)
    out = {"reward": np.zeros(8, np.float32), "weight": np.zeros((8, 2), np.float32)}
    assert Mixture([first, second], [1.0, 3.0]).sample((5, 6), out, [[4], None], beta=0.5) == (2, 8)
    assert out["reward"].tolist() == [1, 1, 2, 2, 2, 2, 2, 2]
    assert first.asked == [((5, 6), 2, [4], 0.5)]
    assert second.asked == [((5, 6), 6, None, 0.5)]


def test_shares_are_exact_on_average() -> None:
    mixture = Mixture([Numbered(0), Numbered(1), Numbered(2)], [0.3, 0.2, 0.5])
    parts = []
    for number in range(2000):
        out = {"reward": np.zeros(7, np.float32)}
        ends = mixture.sample((1, number), out)
        parts.append(np.diff([0, *ends]))
        assert np.bincount(out["reward"].astype(int), minlength=3).tolist() == parts[-1].tolist()
    # 7 * 0.3 = 2.1: two or three; the mean of 2,000 is within five deviations (at most 0.5 / sqrt(2000) each).
    assert np.allclose(np.mean(parts, 0), [2.1, 1.4, 3.5], atol=5 * 0.5 / np.sqrt(2000))
    assert all(abs(part - share).max() < 1 + 1e-9 for part in parts for share in [np.array([2.1, 1.4, 3.5])])


def test_the_same_key_shares_alike() -> None:
    mixture = Mixture([Numbered(0), Numbered(1)], [0.5, 0.5])
    ends = [mixture.sample((3, number), {"reward": np.zeros(5, np.float32)}) for number in range(20)]
    assert ends == [mixture.sample((3, number), {"reward": np.zeros(5, np.float32)}) for number in range(20)]
    assert len(set(ends)) == 2


def test_a_weight_of_nothing_asks_nobody() -> None:
    nobody, all_of_it = Numbered(0), Numbered(1)
    assert Mixture([nobody, all_of_it], [0.0, 2.0]).sample((0, 0), {"reward": np.zeros(3, np.float32)}) == (0, 3)
    assert nobody.asked == []


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, float("nan")]])
def test_weights_that_make_no_sense(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="2 samplers cannot be mixed by weights"):
        Mixture([Numbered(0), Numbered(1)], weights)
