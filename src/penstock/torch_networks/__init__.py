"""Networks as torch functions of their flat vectors. ``penstock.policies`` makes the initial values."""
