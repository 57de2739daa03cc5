"""Sources of experience: one class for each kind of environment, all with the methods of ``types.EnvSource``.

Makes environments, reads their spaces and steps them. Knows no policy, no algorithm and no process.
"""
