"""Settings under which every algorithm computes with every kind of array that it has, for tests of devices."""

LANES, STEPS = 4, 8
CONTINUOUS = {"env": "Pendulum-v1"}
DISCRETE = {"env": "CartPole-v1"}
ON_POLICY = {"num_envs": LANES, "num_steps": STEPS}
QUICK = [
    {"algo": "ppo", **CONTINUOUS, **ON_POLICY},
    {"algo": "ppo", **DISCRETE, **ON_POLICY, "normalize_value": True, "target_kl": 0.01},
    {"algo": "ppo", **DISCRETE, **ON_POLICY, "model": "lstm"},
    {"algo": "ppo", "env": "tests.environments:DictEnv", **ON_POLICY},
    {"algo": "ppo", **CONTINUOUS, **ON_POLICY, "optimizer": "muon"},
    {"algo": "ppo", "env": "tests.environments:EyeEnv", **ON_POLICY, "precision": "float16"},
    {"algo": "impala", "env": "tests.environments:EyeEnv", **ON_POLICY, "precision": "bfloat16"},
    {"algo": "ppo", **CONTINUOUS, **ON_POLICY, "precision": "bfloat16"},
    {"algo": "ppo", **DISCRETE, **ON_POLICY, "model": "lstm", "precision": "float16"},
    {"algo": "ppo", "env": "benchmarks.learning.tasks:MaskedAimEnv", **ON_POLICY},
    {"algo": "a2c", **CONTINUOUS, **ON_POLICY},
    {"algo": "a3c", **DISCRETE, **ON_POLICY},
    {"algo": "appo", **DISCRETE, **ON_POLICY},
    {"algo": "appo", **CONTINUOUS, **ON_POLICY, "model": "gru"},
    {"algo": "appo", **CONTINUOUS, **ON_POLICY, "target_every": 3, "normalize_value": True},
    {"algo": "appo", **DISCRETE, **ON_POLICY, "model": "lstm", "kl_coef": 0.5, "kl_target": 0.01},
    {"algo": "impala", **DISCRETE, **ON_POLICY},
    {"algo": "impala", **DISCRETE, **ON_POLICY, "model": "lstm"},
    {"algo": "dqn", **DISCRETE},
    {"algo": "dqn", **DISCRETE, "atoms": 11, "value_min": 0.0, "value_max": 100.0, "dueling": True},
    {"algo": "dqn", "env": "tests.environments:EyeEnv"},
    {"algo": "apex", **DISCRETE},
    {"algo": "r2d2", **DISCRETE},
    {"algo": "ddpg", **CONTINUOUS},
    {"algo": "td3", **CONTINUOUS},
    {"algo": "sac", **CONTINUOUS},
    {"algo": "sac", **CONTINUOUS, "critic_dropout": 0.1, "critic_layer_norm": True},
    {"algo": "sac", **CONTINUOUS, "precision": "bfloat16"},
    {"algo": "r2d2", **DISCRETE, "precision": "bfloat16"},
    {"algo": "dqn", **DISCRETE, "precision": "float16"},
    {"algo": "td3", **CONTINUOUS, "precision": "float16"},
    {"algo": "r2d2", **DISCRETE, "precision": "float16"},
    {"algo": "dsac", **CONTINUOUS},
    {"algo": "dsact", **CONTINUOUS},
    {"algo": "bc", **DISCRETE},
    {"algo": "bc", **CONTINUOUS, "precision": "bfloat16"},
]
LONG = [
    {"algo": "ppo", "env": "tests.environments:EyeEnv", **ON_POLICY},
    {"algo": "sac", **CONTINUOUS, "model": "lstm"},
    {"algo": "sac", "env": "tests.environments:SteeredEyeEnv"},
    {"algo": "sac", **CONTINUOUS, "model": "gru", "precision": "bfloat16"},
    {"algo": "dqn", "env": "tests.environments:EyeEnv", "precision": "bfloat16"},
    {"algo": "sac", **CONTINUOUS, "precision": "float16"},
    {"algo": "sac", **CONTINUOUS, "model": "lstm", "precision": "float16"},
    {"algo": "dsact", **CONTINUOUS, "precision": "float16"},
]
"""Four seconds and more each: sequences of SAC, and pictures. `QUICK` has both for other algorithms."""
RUNS = [*QUICK, *LONG]
