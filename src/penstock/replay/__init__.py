"""Which stored rows, how often: drawing from tables. Knows no process."""
