"""A learner of your own: Q-learning in NumPy, from the steps of two processes, through a replay buffer.

    python examples/own_learner.py

Each process walks over a frozen lake by the latest table of values, and pushes its steps. This process samples them by
priority and learns. The table is tiny: with a network in its place nothing else would change.
"""

import argparse
import multiprocessing
import time

import gymnasium
import numpy as np

import penstock

ROWS_PER_UPDATE, FIRST_ROWS = 4, 1_000


def make_env():
    """A lake of 16 fields, on which no step slips."""
    return gymnasium.make("FrozenLake-v1", is_slippery=False)


def values_in(shared):
    """The table of values that all processes share: ``[states, actions]``."""
    return np.frombuffer(shared).reshape(16, 4)


def play(writer, shared, stop):
    """Take steps until the learner has had enough."""
    values, random, env = values_in(shared), np.random.default_rng(writer.number), make_env()
    obs, _ = env.reset(seed=writer.number)
    with writer:
        while not stop.is_set():
            seen = values[obs].copy()  # The learner changes them meanwhile.
            best = np.flatnonzero(seen == seen.max())
            action = random.integers(4) if random.random() < 0.5 else random.choice(best)
            next_obs, reward, terminated, truncated, _ = env.step(int(action))
            step = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs}
            writer.push({**step, "terminated": terminated, "truncated": truncated})
            obs = env.reset()[0] if terminated or truncated else next_obs


def learn(buffer, values, updates, processes):
    """Learn until the way is found, or for so many updates. Returns how many were taken."""
    for update in range(updates):
        # The buffer holds nobody back. So this loop keeps the pace: so many rows for each update.
        while buffer.pushed < FIRST_ROWS + ROWS_PER_UPDATE * update:
            if not all(process.is_alive() for process in processes):
                raise SystemExit("a process that plays has ended")
            time.sleep(0.001)
        batch = buffer.sample(64, beta=0.5)
        at = batch["obs"], batch["action"]
        error = batch["reward"] + batch["discount"] * values[batch["next_obs"]].max(axis=1) - values[at]
        values[at] += 0.2 * batch["importance"] * error
        buffer.update_priorities(batch, np.abs(error) + 0.01)
        if update % 100 == 99 and greedy_return(values) == 1.0:
            return update + 1
    return updates


def greedy_return(values):
    """The return of one episode without exploration."""
    env = make_env()
    obs, _ = env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(int(values[obs].argmax()))
        total, over = total + reward, terminated or truncated
    return total


def main():
    """Play in two processes and learn in this one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--updates", type=int, default=20_000, help="most updates")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    shared, stop = context.Array("d", 16 * 4, lock=False), context.Event()
    env = make_env()
    fields = penstock.ReplayBuffer.fields_of(env.observation_space, env.action_space)
    with penstock.ReplayBuffer(fields, capacity=10_000, writers=2, gamma=0.95, alpha=0.6) as buffer:
        processes = [
            context.Process(target=play, args=(buffer.writer(number), shared, stop), daemon=True) for number in range(2)
        ]
        for process in processes:
            process.start()
        updates = learn(buffer, values_in(shared), args.updates, processes)
        stop.set()
        for process in processes:
            process.join()
        print(f"{updates} updates on {buffer.pushed} rows of 2 processes")
    print(f"greedy return {greedy_return(values_in(shared)):.0f}, the best is 1")


if __name__ == "__main__":
    main()
