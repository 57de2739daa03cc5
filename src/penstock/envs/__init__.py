"""Where experience comes from: one adapter for each kind of environment, all in the shape of ``types.EnvSource``.

Knows no policy, no algorithm and no process: it makes environments, steps them and says what their spaces are.
"""
