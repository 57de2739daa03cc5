"""What is served: where a policy comes from, how it answers a batch, whether it may answer, which agent plays with it.

Knows no clients: no sockets, sessions or queues. Worker processes use it as well.
"""
