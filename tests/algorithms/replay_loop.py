"""The smallest loop that can learn from replay: lists of rows, sampled as from a table. Only for tests."""

import numpy as np
import torch

from penstock.types import Box

ENOUGH = 1e-6


class Rows:
    """Rows of some lanes in the order in which they came. Knows which of them may be sampled, and samples them."""

    def __init__(self, spec, lanes):
        self.spec, self.lanes, self.rows = spec, lanes, []
        self.priority, self.largest = [], 1.0

    def add(self, obs, following, action, reward, terminated, ended):
        """One row for each lane; ``following`` holds the observations that the actions led to."""
        for lane in range(self.lanes):
            row = {name: values[lane].copy() for name, values in obs.items()}
            row |= {f"next.{name}": values[lane].copy() for name, values in following.items()}
            row |= {"action": action[lane], "reward": reward[lane], "terminated": terminated[lane]}
            self.rows.append({**row, "ended": ended[lane]})
            self.priority.append(self.largest)

    def ready(self):
        return len(self.rows) - self.lanes * (self.spec.table.n_step - 1)

    def sample(self, generator, size, progress):
        """A minibatch as arrays, and the numbers of its rows."""
        count = self.ready()
        if self.spec.table.priorities is None:
            numbers, importance = generator.integers(0, count, size), None
        else:
            weights = np.asarray(self.priority[:count]) ** self.spec.table.priorities.alpha
            weights /= weights.sum()
            numbers = generator.choice(count, size, p=weights)
            beta = self.spec.table.priorities.beta
            importance = (count * weights) ** -(beta + (1.0 - beta) * progress)
            importance = (importance[numbers] / importance.max()).astype(np.float32)
        found = [self.row(number) for number in numbers]
        batch = {name: np.stack([row[name] for row in found]) for name in found[0]}
        batch["weight"] = np.ones(size, np.float32)
        if importance is not None:
            batch["importance"] = importance
        return {name: batch[name] for name in (*self.spec.minibatch, "weight")}, numbers

    def row(self, number):
        """Row ``number`` with up to n steps summed."""
        table = self.spec.table
        last, reward, discount = number, 0.0, 1.0
        for step in range(table.n_step):
            last = number + step * self.lanes
            reward += discount * self.rows[last]["reward"]
            discount *= table.gamma
            if self.rows[last]["ended"]:
                break
        end = self.rows[last]
        sampled = {**self.rows[number], **{name: end[name] for name in end if name.startswith("next.")}}
        return {
            **sampled,
            "reward": np.float32(reward),
            "discount": np.float32(0.0 if end["terminated"] else discount),
        }


class Loop:
    """One learner and some lanes of an environment.

    Args:
        source: has ``spaces``, ``observe() -> obs`` and ``step(action) -> following, reward, terminated, ended``.
        spec: the spec of the algorithm.
        algorithm: its pure functions.
        first: its first state.
        lanes: number of lanes of the source.
        seed: the seed of all random numbers.
    """

    def __init__(self, source, spec, algorithm, first, lanes, seed=0):
        self.source, self.spec, self.algorithm, self.lanes = source, spec, algorithm, lanes
        self.generator = np.random.default_rng(seed)
        self.state = {name: torch.from_numpy(np.asarray(v)) for name, v in first.items()}
        self.rows = Rows(spec, lanes)
        self.steps, self.gradient_steps, self.owed = 0, 0, 0.0
        self.metrics = {}

    def act(self, obs, explore):
        inputs = {name: torch.from_numpy(values) for name, values in obs.items()}
        generate = self.generator.normal if self.spec.policy.noise.distribution == "normal" else self.generator.random
        noise = generate(size=(len(explore), *self.spec.policy.noise.shape)).astype(np.float32)
        inputs |= {"noise": torch.from_numpy(noise), "explore": torch.from_numpy(explore)}
        published = {part.name: self.state[part.name] for part in self.spec.published()}
        with torch.no_grad():
            return self.algorithm.act(published, inputs)["action"].numpy()

    def collect(self, total):
        """Collect one step of every lane. A run would collect ``num_steps`` of them with one policy."""
        obs = self.source.observe()
        if self.steps < self.spec.warmup:
            space = self.source.spaces.action
            assert isinstance(space, Box)
            action = self.generator.uniform(-1.0, 1.0, (self.lanes, *space.shape)).astype(np.float32)
        else:
            lanes = np.arange(self.lanes)
            explore = self.spec.explore.at(lanes, self.lanes, self.steps // self.lanes, total / self.lanes)
            action = self.act(obs, explore)
        self.rows.add(obs, *self._stepped(action))
        self.steps += self.lanes

    def _stepped(self, action):
        following, reward, terminated, ended = self.source.step(action)
        return following, action, reward, terminated, ended

    def learn(self, progress):
        """The gradient steps that the rows collected since the last call allow."""
        schedule = self.spec.schedule
        while self.owed >= 1.0 - ENOUGH:
            self.owed -= 1.0
            batch, numbers = self.rows.sample(self.generator, schedule.mini_batch_size, progress)
            minibatch = {name: torch.from_numpy(values) for name, values in batch.items()}
            self.gradient_step(minibatch, numbers)

    def gradient_step(self, minibatch, numbers):
        for phase in self.algorithm.phases:
            if self.gradient_steps % phase.every:
                continue
            noise = {
                name: torch.from_numpy(
                    self.generator.normal(size=(len(minibatch["weight"]), *part.shape)).astype(np.float32)
                )
                for name, part in phase.noise
            }
            found = phase.gradients(self.state, minibatch, noise)
            self.state.update(phase.apply(self.state, found.gradients))
            self.metrics.update({name: float(value) for name, value in found.metrics.items()})
            if "priority" in found.per_row:
                for number, priority in zip(numbers, found.per_row["priority"].tolist(), strict=True):
                    self.rows.priority[number] = priority
                    self.rows.largest = max(self.rows.largest, priority)
        self.gradient_steps += 1

    def train(self, total, num_steps):
        """``total`` steps of all lanes together, with ``num_steps`` of each between updates."""
        schedule = self.spec.schedule
        while self.steps < total:
            for _ in range(num_steps):
                self.collect(total)
            if self.rows.ready() >= schedule.min_rows:
                self.owed += num_steps * self.lanes * schedule.updates_per_step
                self.learn(self.steps / total)
