"""Numbers out: what a report is, and the sinks that write it."""
