"""Policies under their names: which version answers whom, newer versions, canaries, the episodes that are kept.

Does not answer itself: questions leave for the engine of a version. Knows no protocol.
"""
