"""Gamecore: its two transports, how bytes become requests, how bodies hold observations, and steps of served policies.

Clients are elsewhere: `penstock.clients`. What both sides know of frames and deltas is in `penstock.gamecore`.
"""
