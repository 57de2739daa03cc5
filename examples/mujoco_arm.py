"""An arm of your own in MuJoCo: it learns to bring its tip to a target, with another arm in each episode.

    pip install 'penstock[mujoco]'
    python mujoco_arm.py

Masses, friction and the delay of actions are drawn in each reset, so that the policy does not rely on those of one
model. ``penstock train --algo sac --env mujoco_arm:make_env`` trains the same from the command line.
"""

import argparse
import tempfile
from collections import deque
from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.spaces import Box

import penstock

XML = """
<mujoco>
  <option timestep="0.005" gravity="0 0 0"/>
  <default>
    <joint axis="0 0 1" damping="0.05" frictionloss="0.01"/><geom type="capsule" size="0.02" mass="0.3"/>
  </default>
  <worldbody>
    <light pos="0 0 2"/>
    <camera name="above" pos="0 0 1.2"/>
    <body name="upper">
      <joint name="shoulder"/><geom fromto="0 0 0 0.2 0 0" rgba="0.2 0.4 0.8 1"/>
      <body name="fore" pos="0.2 0 0">
        <joint name="elbow" limited="true" range="-150 150"/><geom fromto="0 0 0 0.2 0 0" rgba="0.8 0.5 0.2 1"/>
        <site name="tip" pos="0.2 0 0" size="0.02"/>
      </body>
    </body>
    <body name="target" mocap="true"><site name="target" size="0.02" rgba="0.9 0.1 0.1 1"/></body>
  </worldbody>
  <actuator>
    <motor joint="shoulder" ctrlrange="-1 1" gear="0.5"/><motor joint="elbow" ctrlrange="-1 1" gear="0.3"/>
  </actuator>
</mujoco>
"""
FRAME_SKIP = 10
"""Steps of MuJoCo in one period of control: 10 times 5 ms are 50 ms. Take the period of the real machine."""


class Arm(MujocoEnv):
    """Two links in a plane. Actions are the torques of both motors, -1 .. 1 of the largest one."""

    metadata: ClassVar = {"render_modes": ["human", "rgb_array"], "render_fps": 20}

    def __init__(self, render_mode: str | None = None) -> None:
        space = Box(-np.inf, np.inf, (14,), np.float32)
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:  # MujocoEnv reads a file.
            file.write(XML)
            file.flush()
            super().__init__(file.name, FRAME_SKIP, space, render_mode=render_mode, camera_name="above")
        self.usual = {
            name: getattr(self.model, name).copy() for name in ("body_mass", "body_inertia", "dof_frictionloss")
        }

    def reset_model(self) -> np.ndarray:
        """Draw only from ``np_random``: then an episode can be restored by its seed and its actions."""
        heavier, rougher = self.np_random.uniform(0.7, 1.4), self.np_random.uniform(0.5, 2.0)
        self.model.body_mass[:] = heavier * self.usual["body_mass"]
        self.model.body_inertia[:] = heavier * self.usual["body_inertia"]
        self.model.dof_frictionloss[:] = rougher * self.usual["dof_frictionloss"]
        self.delay = int(self.np_random.integers(0, 3))  # In periods.
        self.sent = deque([np.zeros(2)] * 3, maxlen=3)
        distance, angle = self.np_random.uniform(0.15, 0.38), self.np_random.uniform(-np.pi, np.pi)
        self.data.mocap_pos[0] = distance * np.array([np.cos(angle), np.sin(angle), 0.0])
        self.set_state(self.np_random.uniform(-1.0, 1.0, 2), np.zeros(2))
        return self.seen()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """One period of control. The arm gets the action of some periods ago."""
        self.sent.append(np.asarray(action, np.float64))
        self.do_simulation(self.sent[-1 - self.delay], self.frame_skip)
        if self.render_mode == "human":
            self.render()
        reward = -self.distance() - 0.01 * float(np.square(action).sum())
        return self.seen(), reward, False, False, {}

    def seen(self) -> np.ndarray:
        """Angles, speeds, the way to the target, and the latest actions: with a delay, some are still to come."""
        way = self.data.site("target").xpos - self.data.site("tip").xpos
        angles = self.data.qpos
        return np.concatenate([np.cos(angles), np.sin(angles), self.data.qvel, way[:2], *self.sent], dtype=np.float32)

    def distance(self) -> float:
        """From the tip to the target, in metres."""
        return float(np.linalg.norm(self.data.site("target").xpos - self.data.site("tip").xpos))


def make_env(render_mode: str | None = None) -> gymnasium.Env:
    """An episode is 5 seconds."""
    return gymnasium.wrappers.TimeLimit(Arm(render_mode), 100)


def main() -> None:
    """Train, then see how near the arm comes to its targets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=40_000)
    parser.add_argument("--log_dir", default="./logs")
    arguments = parser.parse_args()

    settings = {"algo": "sac", "timesteps": arguments.timesteps, "log_dir": arguments.log_dir, "eval_episodes": 20}
    result = penstock.train({**settings, "env": make_env})
    policy = penstock.load_policy(result.run_folder, env=make_env)
    env = make_env()
    ends = []
    for episode in range(10):
        obs, _ = env.reset(seed=episode)
        for _ in range(100):
            obs, _, _, _, _ = env.step(policy(obs))
        ends.append(env.unwrapped.distance())
    print(f"after 5 seconds the tip is {np.mean(ends):.3f} m from its target, on average of 10 arms")
    print(f"the policy is in {result.run_folder}")


if __name__ == "__main__":
    main()
