"""Types of ``argparse`` for the numbers on a benchmark's command line. Other texts are refused in one line."""

import argparse
import math

__all__ = ["positive_float", "positive_int"]


def positive_int(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: the text is no such number.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 on")
    return number


def positive_float(text: str) -> float:
    """A number above 0.

    Raises:
        argparse.ArgumentTypeError: the text is no such number.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return number
