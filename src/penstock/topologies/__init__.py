"""Builds the program of a plan: its nodes and edges. One file for each topology."""
