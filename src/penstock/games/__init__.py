"""Games that drive their own environment: they connect, ask for actions, and their sessions fill the rollouts."""
