"""From questions that wait to their answers: batches, and what answers them, in this process or in worker processes.

Which version of a policy a question goes to is decided elsewhere, by its endpoint.
"""
