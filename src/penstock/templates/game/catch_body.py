"""The bytes that the game sends. The game and the agent both read this file; it needs nothing but Python."""

from struct import Struct

__all__ = ["BODY"]

BODY = Struct("<4f?")
"""Place of the ball, its height, place of the paddle, reward of the action before, and whether the episode has ended by
itself."""
