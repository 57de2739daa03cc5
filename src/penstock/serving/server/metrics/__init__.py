"""What a server tells of itself: its counts, as Prometheus reads them, and a line of the access log for each request.

Counts what others report, and decides nothing.
"""
