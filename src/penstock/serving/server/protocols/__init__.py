"""What clients speak. Each folder translates one protocol to calls of `Steps` or `Endpoint`, and knows no other.

`administration.py` is for operators instead of clients.
"""
