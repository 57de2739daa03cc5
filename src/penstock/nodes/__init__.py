"""Who does the work: one class a file, made from plain settings. No node knows another one, or torch."""
