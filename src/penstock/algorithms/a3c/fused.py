"""A3C as one native update: A2C's, whose gradients are handed on.

Imports no torch. Does not run images, shared trunks, policies with memory and devices: those run ``learn.py``.
"""

from penstock.algorithms.a2c.fused import build
from penstock.algorithms.ppo.fused import supports

__all__ = ["build", "supports"]
