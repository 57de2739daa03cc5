"""Numbers that a benchmark takes on its command line, as types of ``argparse``, which refuses others in one line."""

import argparse
import math

__all__ = ["positive_float", "positive_int"]


def positive_int(text: str) -> int:
    """How many of something are measured, at least one.

    Raises:
        argparse.ArgumentTypeError: it is no such number.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 on")
    return number


def positive_float(text: str) -> float:
    """How much of something is measured, more than nothing.

    Raises:
        argparse.ArgumentTypeError: it is no such number.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return number
