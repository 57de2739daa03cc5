"""The policy in production: the policy of a run as a function, and its export."""
