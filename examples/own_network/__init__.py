"""Networks of one's own: without memory (`nets.py`), with one (`remembering.py`), an actor with its critic."""
