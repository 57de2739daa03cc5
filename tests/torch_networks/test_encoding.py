"""Observation fields as features: the torch encoding by hand, and the numpy twin against it."""

import numpy as np
import torch

from penstock.policies import Encoding
from penstock.policies.features import features_of
from penstock.torch_networks.encoding import encode, normalise


def test_flat_and_one_hot_fields_are_concatenated_in_order():
    encoding = (Encoding("obs.a", "flat", 2), Encoding("obs.b", "one_hot", 3, start=5), Encoding("obs.c", "flat", 1))
    obs = {
        "obs.a": torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8),
        "obs.b": torch.tensor([5, 7]),
        "obs.c": torch.tensor([0.5, -0.5], dtype=torch.float64),
    }
    x = encode(encoding, obs, torch.float32)["vector"]
    assert x.tolist() == [[1.0, 2.0, 1.0, 0.0, 0.0, 0.5], [3.0, 4.0, 0.0, 0.0, 1.0, -0.5]]
    assert x.dtype == torch.float32


def test_an_images_channels_come_first_and_lie_last_in_memory():
    image = torch.zeros(1, 2, 3, 4, dtype=torch.uint8)
    image[0, 1, 2, 3] = 255
    x = encode((Encoding("obs", "image", 24),), {"obs": image}, torch.float32)["obs"]
    assert x.shape == (1, 4, 2, 3)
    assert float(x[0, 3, 1, 2]) == 255.0
    assert x.is_contiguous(memory_format=torch.channels_last)
    first = encode((Encoding("obs", "image", 24, channels_first=True),), {"obs": image}, torch.float32)["obs"]
    assert first.shape == (1, 2, 3, 4)
    assert first.is_contiguous(memory_format=torch.channels_last)


def test_bits_begin_with_the_lowest():
    # 9 - 3 = 6 = 110 in binary; 3 - 3 = 0.
    x = encode((Encoding("obs", "binary", 3, 3),), {"obs": torch.tensor([9, 3])}, torch.float32)["vector"]
    assert x.tolist() == [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


def test_a_grid_gets_a_plane_for_each_value_of_each_channel():
    grid = torch.tensor([[[[4, 5], [5, 5]]]])
    x = encode((Encoding("obs", "spatial", 4, 4, shape=(1, 2, 2), values=2),), {"obs": grid}, torch.float32)["obs"]
    # One row of two cells with two channels each: (4, 5) and (5, 5). Planes: channel 0 is 4, is 5; channel 1 likewise.
    assert x.tolist() == [[[[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 0.0]], [[1.0, 1.0]]]]


def test_fields_that_are_not_concatenated_keep_their_names():
    encoding = (
        Encoding("obs.a", "flat", 1),
        Encoding("obs.e", "embedding", 3, 7),
        Encoding("obs.m", "mask", 2, shape=(2,)),
        Encoding("obs.r", "raw", 1, shape=(1,), dtype="int64"),
        Encoding("obs.s", "set", 4, shape=(2, 2)),
    )
    obs = {
        "obs.a": torch.ones(1, 1),
        "obs.e": torch.tensor([8]),
        "obs.m": torch.tensor([[0.0, 2.0]]),
        "obs.r": torch.tensor([[5]]),
        "obs.s": torch.zeros(1, 2, 2, dtype=torch.float64),
    }
    x = encode(encoding, obs, torch.float32)
    assert list(x) == ["vector", "obs.e", "obs.m", "obs.r", "obs.s"]
    assert (x["obs.e"].tolist(), x["obs.m"].tolist(), x["obs.r"].dtype) == ([1], [[False, True]], torch.int64)
    assert x["obs.s"].dtype == torch.float32


def test_bfloat16_holds_every_byte():
    image = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    x = encode((Encoding("obs", "image", 256, channels_first=True),), {"obs": image}, torch.bfloat16)["obs"]
    assert x.flatten().tolist() == list(range(256))


def test_normalise_by_hand():
    # (3 - 1) / 2 = 1; (1000 - 0) / 1 is cut at 10.
    x = normalise(torch.tensor([[3.0, 1000.0]]), torch.tensor([1.0, 0.0]).double(), torch.tensor([4.0, 1.0]).double())
    torch.testing.assert_close(x, torch.tensor([[1.0, 10.0]]))


def test_numpy_features_are_those_of_the_encoding():
    encoding = (
        Encoding("obs.a", "flat", 6),
        Encoding("obs.b", "one_hot", 4, start=-1),
        Encoding("obs.c", "flat", 1),
        Encoding("obs.d", "binary", 3, 2),
        Encoding("obs.e", "image", 12),
    )
    generator = np.random.default_rng(0)
    rows = {
        "obs.a": generator.normal(size=(5, 3, 2, 3)),
        "obs.b": generator.integers(-1, 3, (5, 3)),
        "obs.c": generator.normal(size=(5, 3)).astype(np.float32),
        "obs.d": generator.integers(2, 10, (5, 3)),
        "obs.e": np.zeros((5, 3, 2, 2, 3), np.uint8),
    }
    features = features_of(encoding, rows, 4)
    assert features.shape == (4, 3, 14)
    tensors = {name: torch.from_numpy(values[:4].reshape(-1, *values.shape[2:])) for name, values in rows.items()}
    expected = encode(encoding, tensors, torch.float32)["vector"].reshape(4, 3, -1)
    np.testing.assert_array_equal(features, expected.numpy())
