"""What clients speak. Each file translates one protocol to calls of `Steps`, `Model` or `Endpoint`, and knows no other.

The file of administration is for operators instead of clients.
"""
