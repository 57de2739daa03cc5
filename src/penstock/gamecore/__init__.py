"""Gamecore over TCP as bytes, for clients and servers. Opens no socket and knows no policy."""
