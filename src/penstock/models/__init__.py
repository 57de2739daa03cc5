"""Networks as functions of the flat vectors they live in. Initial values are ``penstock.policies``'s."""
