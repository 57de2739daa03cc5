"""What is learned: one folder per algorithm, ``spec.py`` (plain data, no torch) and ``learn.py`` (the mathematics)."""
