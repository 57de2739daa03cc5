"""Hyper-parameters, state arrays and steps that all algorithms with a table share. It is no algorithm itself."""
