"""The fused updates from a table against a float64 reference, from the states of runs; and against themselves."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch

from penstock.algorithm_lookup import find_algorithm, load_functions
from penstock.envs.sources import probe
from penstock.inference import native
from penstock.kernels import _native
from penstock.kernels.actions import environment_array, to_environment
from penstock.kernels.level import levels
from penstock.kernels.noise import generate
from penstock.registry import UPDATES, load
from penstock.updates.phases import PhaseClock
from penstock.updates.settings import UpdaterSettings
from tests.algorithms.replay_rows import CONTINUOUS, DISCRETE, MIXED, minibatch_of

FUSED = UPDATES["fused"]
SMALL = {"hidden_sizes": (40, 24), "mini_batch_size": 50, "lr": 1e-3}
C51 = {"atoms": 7, "value_min": -3.0, "value_max": 4.0}
CASES = {
    "sac": ("sac", CONTINUOUS, {}),
    "sac, 150 rows": ("sac", CONTINUOUS, {"mini_batch_size": 150}),
    "sac, one row": ("sac", CONTINUOUS, {"mini_batch_size": 1}),
    "sac, three critics, fixed temperature": ("sac", CONTINUOUS, {"critics": 3, "temperature": 0.3}),
    "sac, one critic, tanh": ("sac", CONTINUOUS, {"critics": 1, "activation": "tanh"}),
    "sac, one-hot field, gelu": ("sac", MIXED, {"activation": "gelu", "hidden_sizes": (33,)}),
    "sac, three layers, falling learning rate": (
        "sac",
        CONTINUOUS,
        {"hidden_sizes": (20, 64, 100), "lr_schedule": "linear", "target_entropy": 1.5},
    ),
    "sac, delayed actor": ("sac", CONTINUOUS, {"policy_delay": 3}),
    "dsac": ("dsac", CONTINUOUS, {}),
    "dsac, narrow bound, fixed temperature": (
        "dsac",
        CONTINUOUS,
        {"bound": 0.1, "temperature": 0.3, "policy_delay": 3, "activation": "relu", "mini_batch_size": 150},
    ),
    "dsact": ("dsact", CONTINUOUS, {}),
    "dsact, one row": ("dsact", CONTINUOUS, {"mini_batch_size": 1}),
    "dsact, one-hot field, three critics": (
        "dsact",
        MIXED,
        {"critics": 3, "bound_scale": 0.5, "lr_schedule": "linear", "hidden_sizes": (33,)},
    ),
    "td3": ("td3", CONTINUOUS, {}),
    "td3, one-hot field": ("td3", MIXED, {"policy_delay": 3, "critics": 3}),
    "ddpg": ("ddpg", CONTINUOUS, {}),
    "dqn": ("dqn", DISCRETE, {"target_every": 3}),
    "dqn, not double, dueling, clipped": (
        "dqn",
        DISCRETE,
        {"double": False, "dueling": True, "error_clip": 0.5, "max_grad_norm": 0.1},
    ),
    "dqn, prioritised": ("dqn", DISCRETE, {"prioritised": True, "n_step": 3}),
    "dqn, atoms": ("dqn", DISCRETE, C51),
    "dqn, atoms, dueling, prioritised": ("dqn", DISCRETE, {**C51, "dueling": True, "prioritised": True}),
    "apex": ("apex", DISCRETE, {}),
    "sac, normalised, one-hot field": ("sac", MIXED, {"normalize_obs": True}),
    "td3, normalised": ("td3", CONTINUOUS, {"normalize_obs": True}),
    "dqn, normalised": ("dqn", DISCRETE, {"normalize_obs": True, "target_every": 3}),
    "sac, adamw": ("sac", CONTINUOUS, {"optimizer": "adamw", "weight_decay": 0.1}),
    "dsact, rmsprop": ("dsact", CONTINUOUS, {"optimizer": "rmsprop", "activation": "relu"}),
    "sac, muon, three critics": ("sac", CONTINUOUS, {"optimizer": "muon", "critics": 3}),
    "dqn, muon, dueling, clipped": (
        "dqn",
        DISCRETE,
        {"optimizer": "muon", "hidden_sizes": (20, 40, 24), "dueling": True, "max_grad_norm": 0.1},
    ),
    "td3, sgd": ("td3", CONTINUOUS, {"optimizer": "sgd", "momentum": 0.8}),
    "dqn, rmsprop, clipped": ("dqn", DISCRETE, {"optimizer": "rmsprop", "rmsprop_eps": 0.01, "max_grad_norm": 0.1}),
}


class Case:
    """An algorithm with one config, and rows to learn from."""

    def __init__(self, algorithm, spaces, settings):
        self.spaces = spaces
        package = find_algorithm(algorithm)
        self.package = package
        self.config = package.config(**{**SMALL, **settings})
        self.spec = load(package.spec)(self.spaces, self.config)
        self.algorithm = load_functions(package.learn)(self.spaces, self.config)
        assert load_functions(package.supports)(self.spec.policy, self.config)

    def settings(self, threads=1, *, learner=0, rows=None, fused=True):
        spec = self.spec
        if rows is not None:
            spec = replace(spec, schedule=replace(spec.schedule, mini_batch_size=rows))
        learn = self.package.fused if fused else self.package.learn
        return UpdaterSettings(learn, self.config, spec, self.spaces, "cpu", threads, seed=7, learner=learner)

    def make(self, threads=1, **given):
        updater = load(FUSED.replay)(self.settings(threads, **given))
        updater.load(self.first())
        return updater

    def first(self):
        """The first state, with statistics of observations as after some rows, if the policy has them."""
        state = load(self.package.initial)(self.spaces, self.config, 3)
        if "obs_mean" in state:
            size = len(state["obs_mean"])
            seen = {"obs_mean": np.linspace(-0.5, 0.5, size), "obs_var": np.linspace(0.01, 4.0, size)}
            state |= seen | {"obs_count": np.array(99)}
        return state

    def minibatch(self, seed):
        rows = minibatch_of(self.spaces, self.spec, self.config.mini_batch_size, torch.float32, seed)
        return {name: values.numpy() for name, values in rows.items()}

    def reference(self, state, minibatch, progress):
        """One gradient step in float64, and what its phases found for each row."""
        exact = {name: wide(values) for name, values in state.items()} | {"progress": torch.tensor(progress).double()}
        rows = {name: wide(values) for name, values in minibatch.items()}
        phases = self.algorithm.phases
        clock = PhaseClock([phase.every for phase in phases], [phase.noise for phase in phases], 7, counted=True)
        clock.count = int(state["gradient_steps"])
        found, metrics = {}, {}
        for at in clock.due():
            noise = {name: wide(values) for name, values in clock.noise(at, 0, len(minibatch["weight"])).items()}
            gradients = phases[at].gradients(exact, rows, noise)
            found |= gradients.per_row
            metrics |= {name: float(value) for name, value in gradients.metrics.items()}
            exact |= phases[at].apply(exact, gradients.gradients)
        return exact, {name: values.numpy() for name, values in found.items()}, metrics


def _at_level(made, level, *given):
    return made(*given[:-1], level)


def wide(values):
    return torch.tensor(values, dtype=torch.float64 if values.dtype == np.float32 else None)


def copied(state):
    return {name: values.copy() for name, values in state.items()}


def bits(updater):
    return {name: values.tobytes() for name, values in updater.state().items()}


@pytest.fixture(params=CASES)
def case(request):
    return Case(*CASES[request.param])


class Errors:
    """The error of each vector of the state after each of some gradient steps, relative to its length."""

    def __init__(self, case):
        self._case = case
        self._found = {part.name: [] for part in case.spec.state if part.dtype == "float32"}

    def of_step(self, updater, minibatch, progress):
        """Take a step from the updater's state, in float64 too. Returns what it gives for each row."""
        before = copied(updater.state())
        exact, per_row, metrics = self._case.reference(before, minibatch, progress)
        given = updater.learn(minibatch, progress)
        after = updater.state()
        for name, errors in self._found.items():
            expected = exact[name].numpy()
            errors.append(np.linalg.norm(after[name] - expected) / max(np.linalg.norm(expected), 1e-12))
        for name, values in after.items():
            if values.dtype == np.int64 and name != "obs_count":
                counted = int(before[name]) + 1 if name == "gradient_steps" else int(exact[name])
                assert values == counted, name
        for name, values in per_row.items():
            np.testing.assert_allclose(given[name], values, rtol=1e-4, atol=1e-5)
        assert updater.metrics() == pytest.approx(metrics, rel=2e-4, abs=2e-5)
        return given

    def check(self, share=1.0):
        """Parameters are within their bar in all states, moments in so many of them."""
        for name, errors in self._found.items():
            moment = name.startswith(("adam", "rmsprop"))
            # A second moment is made of squares, whose relative errors are twice as large.
            assert np.quantile(errors, share if moment else 1.0) < (3e-5 if moment else 1e-5), name


def test_gradient_steps_agree_with_float64_along_a_run(case):
    """Each step begins from the state that the one before left: errors do not add up."""
    updater, errors = case.make(), Errors(case)
    for step in range(40):
        errors.of_step(updater, case.minibatch(step % 9), step / 50)
    errors.check()


PLAYED = {
    "sac, 32 and 512": ("sac", "Pendulum-v1", {"hidden_sizes": (32, 512)}),
    "sac, 256": ("sac", "Pendulum-v1", {"hidden_sizes": (256, 256), "mini_batch_size": 256}),
    "td3, 512 and 256": ("td3", "Pendulum-v1", {"hidden_sizes": (512, 256)}),
    "ddpg, 256 and 512": ("ddpg", "Pendulum-v1", {"hidden_sizes": (256, 512)}),
    "dsac, 256": ("dsac", "Pendulum-v1", {"hidden_sizes": (256, 256)}),
    "dsact, 32 and 512": ("dsact", "Pendulum-v1", {"hidden_sizes": (32, 512)}),
    "dqn, 256 and 512, prioritised": ("dqn", "CartPole-v1", {"hidden_sizes": (256, 512), "prioritised": True}),
    "dqn, 512, atoms": (
        "dqn",
        "CartPole-v1",
        {"hidden_sizes": (512,), "atoms": 51, "value_min": 0.0, "value_max": 100.0},
    ),
}


class Rows:
    """Rows of an environment that the policy plays while it learns."""

    def __init__(self, case, env):
        self._case, self._env = case, gymnasium.make(env)
        self._policy = native.build(case.spec.policy)
        self._obs, _ = self._env.reset(seed=0)
        self._generator = np.random.default_rng(0)
        self._rows = []
        self._priorities = []
        self._picked = np.zeros(0, np.int64)

    def play(self, state):
        """One step of the environment."""
        spec, space, lane, step = self._case.spec, self._case.spaces.action, np.zeros(1, np.int64), len(self._rows)
        self._policy.load(state)
        obs = np.asarray(self._obs, np.float32)[None]
        explore = spec.explore.at(lane, 1, step, 1000.0)
        inputs = {"obs": obs, "noise": generate(spec.policy.noise, 0, lane, step), "explore": explore}
        action = self._case.spaces.action_spec()
        chosen = np.zeros((1, *action.shape), action.dtype)
        self._policy.act(inputs, {"action": chosen})
        taken = to_environment(chosen, space, environment_array(space, 1))[0]
        self._obs, reward, terminated, truncated, _ = self._env.step(taken)
        row = {
            "obs": obs[0],
            "action": chosen[0],
            "reward": np.float32(reward),
            "next.obs": np.asarray(self._obs, np.float32),
            "discount": np.float32(0.0 if terminated else self._case.config.gamma),
            "weight": np.float32(1.0),
        }
        self._rows.append(row)
        self._priorities.append(max(self._priorities, default=1.0))
        if terminated or truncated:
            self._obs, _ = self._env.reset()

    def minibatch(self):
        """Rows drawn by their priorities, with their importance, as a sampler gives them."""
        shares = np.array(self._priorities) / np.sum(self._priorities)
        self._picked = self._generator.choice(len(shares), self._case.config.mini_batch_size, p=shares)
        rows = [self._rows[at] for at in self._picked]
        importance = (len(shares) * shares[self._picked]) ** -0.4
        given = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        given["importance"] = (importance / importance.max()).astype(np.float32)
        return {part.name: given[part.name] for part in self._case.spec.sampled(self._case.spaces)}

    def rank(self, found):
        """Take the priorities that a gradient step has found for the rows of the last minibatch."""
        for at, priority in zip(self._picked, found.get("priority", ()), strict=False):
            self._priorities[at] = float(priority) ** 0.6


@pytest.mark.nightly
@pytest.mark.parametrize("name", PLAYED)
def test_gradient_steps_agree_with_float64_from_1000_states_of_a_run_that_plays(name):
    """Wide layers, and rows of a real environment, which the policy plays as it learns.

    Now and then the input of a ReLU that is nearly 0 has another sign in float32 than in float64, or the smaller one of
    two critics is another. That row's gradient then differs in earnest, and the moments show it in one state of many.
    """
    algorithm, env, settings = PLAYED[name]
    case = Case(algorithm, probe(env).spaces, settings)
    updater, errors, rows = case.make(), Errors(case), Rows(case, env)
    for _ in range(case.config.mini_batch_size):
        rows.play(updater.state())
    for step in range(1000):
        rows.play(updater.state())
        rows.rank(errors.of_step(updater, rows.minibatch(), step / 1000))
    errors.check(share=0.99)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", ["sac", "dsact", "td3", "dqn, atoms, dueling, prioritised"])
def test_each_instruction_set_finds_the_same_gradients(monkeypatch, name, level):
    """The gradients of the phases, which no step of Adam hides."""
    found = []
    for chosen in (None, level):
        for function in (
            "soft_actor_critic",
            "distributional_actor_critic",
            "deterministic_actor_critic",
            "q_learning",
        ):
            made = getattr(_native, function)
            monkeypatch.setattr(_native, function, partial(_at_level, made, chosen))
        case = Case(*CASES[name])
        updater = load(FUSED.follower)(
            case.settings(), lambda phase, values, weight: found.append((phase, copied(values)))
        )
        updater.load(case.first())
        updater.learn(case.minibatch(1), 0.0)
        monkeypatch.undo()
    half = len(found) // 2
    for (phase, mine), (other, theirs) in zip(found[:half], found[half:], strict=True):
        assert phase == other
        for vector, values in mine.items():
            np.testing.assert_allclose(values, theirs[vector], rtol=1e-4, atol=1e-6)


def test_two_threads_give_the_same_bits(case):
    one, two = case.make(), case.make()
    two._pace.threads = lambda work: 2
    for step in range(12):
        minibatch = case.minibatch(step % 5)
        assert one.learn(minibatch, 0.1).keys() == two.learn(minibatch, 0.1).keys()
        assert one.metrics() == two.metrics()
    assert bits(one) == bits(two)


def test_a_state_that_is_stored_and_loaded_goes_on_alike(case):
    through, first = case.make(), case.make()
    for step in range(3):
        through.learn(case.minibatch(step), 0.0)
        first.learn(case.minibatch(step), 0.0)
    second = load(FUSED.replay)(case.settings())
    second.load(copied(first.state()))
    for step in range(3, 7):
        through.learn(case.minibatch(step), 0.0)
        second.learn(case.minibatch(step), 0.0)
    assert bits(through) == bits(second)


@pytest.mark.parametrize("name", ["sac", "dsact", "td3", "dqn, prioritised"])
def test_learners_that_share_a_minibatch_find_the_gradient_of_the_whole(name):
    """Noise belongs to rows of the whole minibatch, so the second learner has that of the second half."""
    case = Case(*CASES[name])
    whole, halves = [], []
    alone = load(FUSED.follower)(case.settings(), lambda _, values, weight: whole.append(copied(values)))
    minibatch = case.minibatch(0)
    for learner in range(2):
        one = load(FUSED.follower)(
            case.settings(learner=learner, rows=25), lambda _, values, weight: halves.append(copied(values))
        )
        one.load(case.first())
        one.learn({field: values[25 * learner :][:25].copy() for field, values in minibatch.items()}, 0.0)
    alone.load(case.first())
    alone.learn(minibatch, 0.0)
    for at, found in enumerate(whole):
        for vector, values in found.items():
            mean = (halves[at][vector] + halves[at + len(whole)][vector]) / 2
            np.testing.assert_allclose(mean, values, rtol=1e-4, atol=1e-6)


def test_gradients_that_are_handed_on_and_applied_make_the_same_step(case):
    """One learner computes gradients, another applies them: as async learners do, without lag. Phases see one state."""
    found = {}
    follower = load(FUSED.follower)(
        case.settings(), lambda phase, values, weight: found.update({phase: copied(values)})
    )
    applier = load(FUSED.applier)(case.settings())
    eager = load(UPDATES["eager"].applier)(case.settings(fused=False))
    for updater in (follower, applier, eager):
        updater.load(case.first())
    for step in range(3):
        follower.learn(case.minibatch(step), 0.2)
        applier.apply(found, 0.2)
        eager.apply(found, 0.2)
        shared = {part.name for part in case.spec.shared()} - {"gradient_steps"}
        follower.load({name: values for name, values in applier.state().items() if name in shared})
    for name, values in eager.state().items():
        np.testing.assert_allclose(applier.state()[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def test_an_exchange_that_changes_nothing_changes_nothing(case):
    calls = []

    def exchange(phase, gradients, weight):
        calls.append((phase, weight))
        return copied(gradients)

    alone, together = case.make(), load(FUSED.replay)(case.settings(), exchange)
    together.load(case.first())
    for step in range(4):
        alone.learn(case.minibatch(step), 0.0)
        together.learn(case.minibatch(step), 0.0)
    assert bits(alone) == bits(together)
    assert {weight for _, weight in calls} == {float(case.config.mini_batch_size)}


def test_a_row_that_is_not_a_number_spoils_the_losses(case):
    for at in (0, case.config.mini_batch_size - 1):
        updater, minibatch = case.make(), case.minibatch(0)
        minibatch["reward"][at] = np.nan
        updater.learn(minibatch, 0.0)
        assert np.isnan(updater.metrics()["value_loss"])


@pytest.mark.parametrize("name", ["sac", "dqn, prioritised"])
def test_arrays_that_do_not_fit_are_refused(name):
    case = Case(*CASES[name])
    updater = case.make()
    with pytest.raises(ValueError, match="length"):
        updater.load({"actor": case.first()["actor"][:-1]})
    minibatch = case.minibatch(0)
    for short in ("reward", "obs", "action"):
        with pytest.raises(ValueError, match="shape"):
            updater._kernel.bind(minibatch | {short: minibatch[short][:-1]}, None)


def test_cuts_do_not_matter(case):
    """As `learn` is one step at a time, and several learners may call it, only the order of minibatches counts."""
    states = []
    for cuts in ([0, 6], [0, 2, 6]):
        updater = case.make()
        for start, stop in pairwise(cuts):
            for step in range(start, stop):
                updater.learn(case.minibatch(step), 0.0)
            updater.load(copied(updater.state()))
        states.append(bits(updater))
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("algorithm", "spaces", "settings", "serves"),
    [
        ("sac", CONTINUOUS, {}, True),
        ("sac", MIXED, {"hidden_sizes": (400, 300), "activation": "silu"}, True),
        ("sac", CONTINUOUS, {"layer_norm": True}, False),
        ("sac", CONTINUOUS, {"adam_eps": 0.0}, False),
        ("dsac", CONTINUOUS, {}, True),
        ("dsact", MIXED, {}, True),
        ("dsact", CONTINUOUS, {"layer_norm": True}, False),
        ("td3", CONTINUOUS, {"layer_norm": True}, False),
        ("ddpg", CONTINUOUS, {}, True),
        ("dqn", DISCRETE, {"dueling": True, "atoms": 51}, True),
        ("dqn", DISCRETE, {"adam_eps": 0.0}, False),
        ("apex", DISCRETE, {}, True),
        ("sac", CONTINUOUS, {"optimizer": "sgd"}, True),
        ("sac", CONTINUOUS, {"optimizer": "muon"}, True),
        ("sac", CONTINUOUS, {"optimizer": "rmsprop", "rmsprop_eps": 0.0}, False),
    ],
)
def test_serves_mlps(algorithm, spaces, settings, serves):
    package = find_algorithm(algorithm)
    config = package.config(**settings)
    graph = load(package.spec)(spaces, config).policy
    assert load_functions(package.supports)(graph, config) is serves
