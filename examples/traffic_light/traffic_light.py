"""A traffic light in SUMO, without a window: when should which street have green?

    pip install eclipse-sumo
    cd examples/traffic_light
    penstock train --algo dqn --env traffic_light:TrafficLight --timesteps 20000 --gamma 0.9

One crossing of two streets. Every five seconds the policy says which street has green; a change takes three seconds of
yellow. It sees how many cars stand on each of the four roads, which street has green, and for how long. The reward is
minus the cars that stand, over ten. Traffic differs from episode to episode: one street may be the busy one.

``python traffic_light.py`` plays the fixed cycle of most traffic lights, for comparison.
"""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import sumo
from gymnasium.spaces import Box, Discrete

sys.path.append(str(Path(sumo.SUMO_HOME) / "tools"))
import traci  # a part of eclipse-sumo, below its own folder

__all__ = ["TrafficLight"]

DECISION_S, YELLOW_S, EPISODE_S = 5, 3, 600
ARM_M = 200
LEAST, MOST = 0.02, 0.25
"""Cars a second on one road."""
ROADS = {
    "north": ("top0A0", "A0bottom0"),
    "south": ("bottom0A0", "A0top0"),
    "west": ("left0A0", "A0right0"),
    "east": ("right0A0", "A0left0"),
}


class TrafficLight(gymnasium.Env):
    """One crossing. An episode is ten minutes."""

    # Standing cars on four roads, which street has green, seconds since the last change: all about 0 to 1.
    observation_space = Box(0.0, np.inf, (6,), np.float32)
    action_space = Discrete(2)

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="traffic-light-")
        self._net = Path(self._folder.name, "crossing.net.xml")
        tool = Path(sumo.SUMO_HOME, "bin", "netgenerate")
        arms = ("--grid", "--grid.number=1", f"--grid.attach-length={ARM_M}", "--no-turnarounds", "--tls.set=A0")
        subprocess.run([tool, *arms, f"-o={self._net}"], check=True, stdout=subprocess.DEVNULL)
        self._world = None

    def reset(self, *, seed=None, options=None):
        """Begin ten minutes with traffic of their own."""
        super().reset(seed=seed)
        routes = Path(self._folder.name, "cars.rou.xml")
        routes.write_text(self._cars())
        files = ["--net-file", str(self._net), "--route-files", str(routes)]
        quiet = [
            "--no-step-log",
            "--no-warnings",
            "--time-to-teleport=-1",
            f"--seed={self.np_random.integers(1 << 31)}",
        ]
        if self._world is None:
            # Each environment has a simulator, and each simulator a label.
            label = f"{id(self)}"
            traci.start(
                [str(Path(sumo.SUMO_HOME, "bin", "sumo")), *files, *quiet], label=label, stdout=subprocess.DEVNULL
            )
            self._world = traci.getConnection(label)
        else:
            self._world.load([*files, *quiet])
        (self._light,) = self._world.trafficlight.getIDList()
        links = self._world.trafficlight.getControlledLinks(self._light)
        of_north_south = [link[0][0].startswith(("top0", "bottom0")) for link in links]
        self._states = ["".join("G" if one == first else "r" for one in of_north_south) for first in (True, False)]
        self._green, self._since = 0, 0
        self._show(self._states[0])
        return self._seen(), {}

    def step(self, action):
        """Five seconds with green for one street: 0 is north and south, 1 is west and east."""
        world = self._world
        if action != self._green:
            self._show(self._states[self._green].replace("G", "y"))
            self._run(YELLOW_S)
            self._green, self._since = int(action), 0
            self._show(self._states[self._green])
            self._run(DECISION_S - YELLOW_S)
        else:
            self._run(DECISION_S)
        self._since += DECISION_S
        seen = self._seen()
        return seen, -float(seen[:4].sum()), False, world.simulation.getTime() >= EPISODE_S, {}

    def close(self):
        """End the simulator."""
        world, self._world = self._world, None
        if world is not None:
            with contextlib.suppress(traci.exceptions.TraCIException, OSError):
                world.close()
            self._folder.cleanup()

    def _run(self, seconds):
        for _ in range(seconds):
            self._world.simulationStep()

    def _show(self, state):
        self._world.trafficlight.setRedYellowGreenState(self._light, state)

    def _seen(self):
        standing = [self._world.edge.getLastStepHaltingNumber(road) for road, _ in ROADS.values()]
        return np.array([*(cars / 10 for cars in standing), self._green, min(self._since, 60) / 60], np.float32)

    def _cars(self):
        """Cars for one episode: as many on the two roads of a street, going straight on."""
        busy = self.np_random.uniform(LEAST, MOST, 2)
        flows = [
            f'<flow id="{name}" begin="0" end="{EPISODE_S}" from="{begin}" to="{end}" '
            f'probability="{busy[int(name in {"west", "east"})]:.4f}" departSpeed="max"/>'
            for name, (begin, end) in ROADS.items()
        ]
        return f"<routes>{''.join(flows)}</routes>"


def main():
    """Play the fixed cycle: 30 seconds of green for each street."""
    env, returns = TrafficLight(), []
    for seed in range(10):
        env.reset(seed=seed)
        total, t, is_over = 0.0, 0, False
        while not is_over:
            _, reward, _, is_over, _ = env.step(t // 6 % 2)
            total, t = total + reward, t + 1
        returns.append(total)
    env.close()
    print(f"fixed cycle: return {np.mean(returns):.1f} over {len(returns)} episodes")


if __name__ == "__main__":
    main()
