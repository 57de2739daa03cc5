"""Settings of a short run, for trials."""

SMALL = {"env": "CartPole-v1", "num_steps": 32, "timesteps": 512, "eval_episodes": 2, "epochs": 1}
