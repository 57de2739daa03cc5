"""PPO of stable-baselines3 on an Atari game; runs in its own environment and prints one line `RESULT {json}`.

It imports nothing of penstock: `benchmarks/atari.py` starts it beside penstock's run. Wrappers, network (one Nature CNN
under both heads) and hyper-parameters are the peer's own for Atari: rl-baselines3-zoo, `hyperparams/ppo.yml`.
"""

import argparse
import json
import os
import time


def arguments() -> argparse.Namespace:
    """What is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="PongNoFrameskip-v4")
    parser.add_argument("--vec_env", choices=("dummy", "subproc"), default="dummy")
    parser.add_argument("--threads", type=int, default=2, help="torch threads; 2 is the peer's best on 2 cores")
    parser.add_argument("--updates", type=int, default=6, help="batches that are measured, after one that is not")
    return parser.parse_args()


def main() -> None:
    """Train, leave the first batch out, print agent steps and frames per second."""
    args = arguments()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import ale_py
    import gymnasium
    import stable_baselines3
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    gymnasium.register_envs(ale_py)
    torch.set_num_threads(args.threads)

    class Clock(BaseCallback):
        """Notes the time at each start of a rollout: one batch collected and learned lies between two of them."""

        def __init__(self) -> None:
            super().__init__()
            self.starts: list[tuple[float, float]] = []

        def _on_rollout_start(self) -> None:
            self.starts.append((time.perf_counter(), time.process_time()))

        def _on_step(self) -> bool:
            return True

    vec_env = DummyVecEnv if args.vec_env == "dummy" else SubprocVecEnv
    env = VecFrameStack(make_atari_env(args.game, n_envs=8, seed=0, vec_env_cls=vec_env), 4)
    model = PPO(
        "CnnPolicy",
        env,
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
        vf_coef=0.5,
        device="cpu",
        seed=0,
    )
    clock = Clock()
    model.learn((args.updates + 1) * 8 * 128, callback=clock)
    seconds, cpu = time.perf_counter() - clock.starts[1][0], time.process_time() - clock.starts[1][1]
    env.close()
    steps = args.updates * 8 * 128
    result = {
        "system": f"stable-baselines3 {stable_baselines3.__version__}",
        "torch": torch.__version__,
        "threads": args.threads,
        "vec_env": args.vec_env,
        "steps": steps,
        "seconds": round(seconds, 3),
        "cpu_s": round(cpu, 3),
        "steps_per_s": round(steps / seconds, 1),
        "frames_per_s": round(4 * steps / seconds, 1),
    }
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
