"""Compares runs on one task, side by side: returns with their uncertainty, speed and idle time."""

from penstock.experiments.comparison.measures import Comparison, compare
from penstock.experiments.comparison.picture import save_picture
from penstock.experiments.comparison.sides import read_sides
from penstock.experiments.comparison.text import as_json, as_table

__all__ = ["Comparison", "as_json", "as_table", "compare", "read_sides", "save_picture"]
