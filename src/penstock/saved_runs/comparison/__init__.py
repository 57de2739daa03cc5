"""Compares runs on one task, side by side: returns with their uncertainty, speed and idle time."""

from penstock.saved_runs.comparison.measures import Comparison, compare
from penstock.saved_runs.comparison.picture import save_picture
from penstock.saved_runs.comparison.sides import read_sides
from penstock.saved_runs.comparison.text import as_json, as_table

__all__ = ["Comparison", "as_json", "as_table", "compare", "read_sides", "save_picture"]
