"""A network of one's own: see `nets.py`."""
