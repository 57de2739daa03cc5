"""Target networks that are copies of the networks, renewed every so many gradient steps."""
