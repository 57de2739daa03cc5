"""Observation fields as the input of a network. Numbers only: which encoding a space gets is the spec's choice."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from penstock.network import Encoding

__all__ = ["encode", "normalise"]

CLIP = 10.0
EPSILON = 1e-8


def encode(encoding: Sequence[Encoding], obs: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    """``[n, features]`` of concatenated flat and one-hot fields, or ``[n, C, H, W]`` in [0, 1] of the one image.

    Args:
        encoding: how each field enters.
        obs: field -> ``[n, ...]``.
        dtype: of the result, which is that of the parameters.
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
    return image.to(dtype) / 255.0


def normalise(features: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """``clip((x - mean) / sqrt(var + 1e-8), -10, 10)`` for ``features`` ``[n, k]``, in the dtype of the features."""
    scale = (variance + EPSILON).rsqrt().to(features.dtype)
    return ((features - mean.to(features.dtype)) * scale).clamp(-CLIP, CLIP)
