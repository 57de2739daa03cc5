"""Observation fields as the input of a network. Numbers only: which encoding a space gets is the spec's choice."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from penstock.policies import Encoding

__all__ = ["encode", "input_scale", "normalise"]

CLIP = 10.0
EPSILON = 1e-8
IMAGE_FORMAT = torch.channels_last
"""Of images in memory; the convolutions behind keep it. 227 to 170 ms for a minibatch of 256 x 4 x 84 x 84 (Zen 4)."""


def encode(encoding: Sequence[Encoding], obs: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    """``[n, features]`` of concatenated flat and one-hot fields, or ``[n, C, H, W]`` of the one image, in bytes' units.

    An image is not brought to [0, 1] here: the network's first layer does that with its weights (`input_scale`), of
    which there are fewer than pixels. Its channels lie last in memory: see `IMAGE_FORMAT`.

    Args:
        encoding: how each field enters.
        obs: field -> ``[n, ...]``.
        dtype: of the result; every byte is a number in bfloat16, too.
    """
    parts = [_encode_field(part, obs[part.field], dtype) for part in encoding]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _encode_field(part: Encoding, values: Tensor, dtype: torch.dtype) -> Tensor:
    if part.kind == "flat":
        return values.to(dtype).flatten(1) if values.dim() > 1 else values.to(dtype).unsqueeze(1)
    if part.kind == "one_hot":
        numbers = torch.arange(part.start, part.start + part.size, device=values.device)
        return (values.unsqueeze(1) == numbers).to(dtype)
    image = values if part.channels_first else values.permute(0, 3, 1, 2)
    return image.contiguous(memory_format=IMAGE_FORMAT).to(dtype)


def input_scale(encoding: Sequence[Encoding]) -> float:
    """What the encoded input is to be multiplied by: 1/255 for an image, else 1."""
    return 1.0 / 255.0 if encoding[0].kind == "image" else 1.0


def normalise(features: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """``clip((x - mean) / sqrt(var + 1e-8), -10, 10)`` for ``features`` ``[n, k]``, in the dtype of the features."""
    scale = (variance + EPSILON).rsqrt().to(features.dtype)
    return ((features - mean.to(features.dtype)) * scale).clamp(-CLIP, CLIP)
