"""Nodes, the workers of a program: one class a file, made from plain settings. No node knows another node, or torch."""
