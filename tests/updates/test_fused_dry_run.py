"""The dry run of a native update: what ships passes it, and a mistake in a user's ``fused.py`` is one line."""

import sys

import pytest

from penstock.algorithm_lookup import find_algorithm, load_functions
from penstock.errors import ConfigError
from penstock.planning.specs import spec_of
from penstock.program.rollout import rollout_specs
from penstock.types import Box, Discrete, Spaces
from penstock.updates.fused.dry_run import dry_run
from penstock.updates.settings import UpdaterSettings

VECTOR = ("obs", Box((3,), "float32", (1.0,), (2.0,)))
BOUNDED = Spaces((VECTOR,), Box((2,), "float32", (-1.0,), (1.0,)))
CHOICES = Spaces((("action_mask", Box((4,), "uint8", (0.0,), (1.0,))), ("obs", Discrete(5, 2))), Discrete(4))
SMALL = {"num_steps": 8, "mini_batch_size": 16, "hidden_sizes": (8,)}

FUSED = """
from penstock.algorithms.{like}.fused import *
from penstock.algorithms.{like} import fused

class Handing:
    def __init__(self, update, methods):
        self.update, self.methods = update, methods

    def __getattr__(self, name):
        return self.methods[name] if name in self.methods else getattr(self.update, name)

def changed(update, **methods):
    return Handing(update, methods)

def build(spaces, config):
    made = fused.build(spaces, config)
    return {gives}
"""
"""``changed`` gives an update some methods of its own."""


def tried(algo: str, spaces: Spaces, fused: str | None = None, *, shared: bool = False, **changed: object) -> None:
    package = find_algorithm(algo)
    config = package.config(**{**SMALL, **changed})
    spec = spec_of(package, spaces, config)
    learn = fused or package.fused
    assert load_functions(package.supports)(spec.policy, config)
    slot = rollout_specs(spaces, spec.row, config.num_steps, 2, same_step=True, carry=spec.policy.carry)
    settings = UpdaterSettings(learn, config, spec, spaces, "cpu", 1, seed=0)
    dry_run("theirs", package.initial, settings, slot, shared=shared)


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@pytest.mark.parametrize(
    ("algo", "spaces", "settings"),
    [
        *((algo, BOUNDED, {}) for algo in ("ppo", "a2c", "impala", "appo", "sac", "dsac", "dsact", "td3", "ddpg")),
        *((algo, CHOICES, {}) for algo in ("ppo", "a3c", "impala", "dqn", "apex")),
        ("ppo", BOUNDED, {"normalize_obs": True, "normalize_value": True}),
        ("sac", BOUNDED, {"normalize_obs": True}),
        ("dqn", CHOICES, {"prioritised": True, "n_step": 3}),
    ],
)
def test_what_ships_gives_what_its_spec_says(algo, spaces, settings, shared: bool) -> None:
    tried(algo, spaces, shared=shared, **settings)


def test_a_first_state_that_the_spec_does_not_have(monkeypatch) -> None:
    monkeypatch.setattr("penstock.algorithms.ppo.spec.init_state", lambda spaces, config, seed: {"net": 0.0})
    with pytest.raises(
        ConfigError, match=r"init_state in penstock\.algorithms\.ppo\.spec gives 'net', which the state"
    ):
        tried("ppo", BOUNDED)


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """Tries the ``fused.py`` of an algorithm that ships, with something else in the place of what it gives."""
    monkeypatch.syspath_prepend(tmp_path)

    def refusal(like: str, gives: str, **settings: object) -> str:
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / "fused.py").write_text(FUSED.format(like=like, gives=gives))
        with pytest.raises(ConfigError) as refused:
            tried(like, BOUNDED, "theirs.fused:build", **settings)
        said = str(refused.value)
        assert "\n" not in said
        return said

    yield refusal
    for name in [name for name in sys.modules if name.partition(".")[0] == "theirs"]:
        sys.modules.pop(name)


STREAM = "made._replace(update=lambda shape, threads: changed(made.update(shape, threads), {}))"
TABLE = "made._replace(update=lambda seed, row: changed(made.update(seed, row), {}))"


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        (
            "made._asdict()",
            "build in theirs.fused gives a dict; return a penstock.algorithm.Fused, because the Algorit",
        ),
        ("spaces.no_such_thing", "build in theirs.fused fails: AttributeError: "),
        ("made._replace(targets=lambda state, rollout: {})", "targets in theirs.fused does not give advantage, which"),
        (
            "made._replace(targets=lambda state, rollout: {n: v[0] for n, v in made.targets(state, rollout).items()})",
            "targets in theirs.fused gives advantage with the shape (2,); in targets of the AlgorithmSpec it has (8",
        ),
        (
            "made._replace(targets=lambda s, r: {n: v.astype('float64') for n, v in made.targets(s, r).items()})",
            "targets in theirs.fused gives advantage as float64; in targets of the AlgorithmSpec it is float32",
        ),
        (
            "made._replace(targets=lambda state, rollout: rollout['values'])",
            "targets in theirs.fused reads 'values', which a rollout does not have; add it to row in spec.py if the po",
        ),
        ("made._replace(statistics=lambda state, rollout: None)", "statistics in theirs.fused gives a NoneType; retur"),
        (
            "made._replace(update=lambda shape, threads: object())",
            "update in theirs.fused gives a object, which has no method pack; penstock.algorithm.FusedUpdate says what",
        ),
        (STREAM.format("pack=lambda state, rows, first, count: rows['next'][0]"), "pack in theirs.fused fails: KeyErr"),
        (
            STREAM.format("run=lambda state, indices, weights: dict(state)"),
            "run in theirs.fused gives a dict; write into the given arrays and return nothing",
        ),
        (
            STREAM.format("run=lambda state, indices, weights: state.update(actor=state['actor'][1:])"),
            "run in theirs.fused gives actor with the shape ",
        ),
        (
            STREAM.format("run=lambda state, indices, weights: state.update(actor=state['actor'].astype('float64'))"),
            "run in theirs.fused gives actor as float64; in the state it is float32",
        ),
        (STREAM.format("metrics=lambda: {'loss': [1.0, 2.0]}"), "metrics in theirs.fused gives loss with the shape (2"),
    ],
)
def test_a_function_for_a_stream_that_gives_something_else(theirs, gives: str, says: str) -> None:
    assert theirs("ppo", gives).startswith(f"algorithm theirs: {says}")


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        (
            STREAM.format("gradients=lambda *given: {}"),
            "gradients in theirs.fused gives a dict; return the gradients by network",
        ),
        (
            STREAM.format("gradients=lambda state, *given: ({'actor': state['critic']}, 16.0)"),
            "gradients in theirs.fused gives actor with the shape ",
        ),
        (STREAM.format("apply=None"), "update in theirs.fused gives a Handing, which has no method apply; "),
    ],
)
def test_gradients_that_learners_share_are_tried_where_they_do(theirs, gives: str, says: str) -> None:
    assert theirs("ppo", gives, shared=True).startswith(f"algorithm theirs: {says}")


@pytest.mark.parametrize(
    ("gives", "shared", "says"),
    [
        ("made.update", False, "build in theirs.fused gives a partial; return a penstock.algorithm.FusedReplay, becau"),
        (TABLE.format("step=lambda progress, threads: 1 / 0"), False, "step in theirs.fused fails: ZeroDivision"),
        (
            TABLE.format("bind=None"),
            False,
            "update in theirs.fused gives a Handing, which has no method bind; penstock",
        ),
        (
            TABLE.format("phases=('critic',)"),
            True,
            "phases in theirs.fused has 'critic'; write a penstock.kernels.steps",
        ),
        (
            TABLE.format("gradients=lambda phase, threads: {'net': 0.0}"),
            True,
            "gradients in theirs.fused gives 'net', which the state does not have; it has ",
        ),
        (
            TABLE.format("store=lambda state: state.update(more=0.0)"),
            False,
            "store in theirs.fused gives 'more', which the state does not have; it has ",
        ),
    ],
)
def test_a_function_for_a_table_that_gives_something_else(theirs, gives: str, shared: bool, says: str) -> None:
    assert theirs("sac", gives, shared=shared).startswith(f"algorithm theirs: {says}")
