"""Games of ML-Agents (Unity), as ``mlagents://:5005`` or ``mlagents://path/to/game``. Each agent of a game is a lane.

The protocol is that of the package ``mlagents-envs``, 1.3 to 1.5 (https://github.com/Unity-Technologies/ml-agents).
The game calls the trainer by gRPC. It says which agents ask for an action and which episodes have ended, and gets the
actions.

All agents of a game must ask at the same moments, because penstock steps them together. The game itself begins the next
episode of an agent that has ended, and takes a seed only when it begins. So episodes cannot be restored.
"""

from penstock.envs.mlagents.factory import agents_at

__all__ = ["agents_at"]
