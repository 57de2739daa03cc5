"""What clients speak. Each file translates one protocol to calls of an `Endpoint`; none knows another."""
