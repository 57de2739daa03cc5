"""The algorithms: a folder for each, with ``spec.py`` (plain data, no torch) and ``learn.py`` (the mathematics)."""
