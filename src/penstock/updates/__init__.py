"""Backends of the update: each turns an algorithm's phases into running code. None knows a particular algorithm."""
