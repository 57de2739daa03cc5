"""Connections of clients: what all byte streams do alike, HTTP, and what the connections of one server share.

Knows no paths and no frames of a protocol: those are in `penstock.serving.server.protocols`.
"""
