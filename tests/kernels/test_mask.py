"""Action masks, natively: a forbidden action is never chosen, and probabilities are over the allowed ones."""

import numpy as np
import pytest

from penstock.kernels.level import levels
from penstock.kernels.noise import generate
from penstock.kernels.policy import PolicyKernel
from penstock.policies import Categorical, EpsilonGreedy
from penstock.policies.native import layout_of
from tests.inference import reference

MASK = "obs.mask"
CHOOSING = [
    name
    for name, graph in (reference.GRAPHS | reference.MEMORIES).items()
    if isinstance(graph.head, Categorical | EpsilonGreedy)
]


def graph_of(name):
    return (reference.GRAPHS | reference.MEMORIES)[name]


def loaded(graph, level=None, mask=MASK):
    kernel = PolicyKernel(layout_of(graph)._replace(mask=mask), level)
    published = reference.record(graph, np.random.default_rng(0))
    kernel.load(published)
    return kernel, published


def given_to(graph, generator, n):
    """Inputs of n rows; each allows about half of the actions, and one at least."""
    allowed = generator.random((n, graph.head.n)) < 0.5
    allowed[np.arange(n), generator.integers(0, graph.head.n, n)] = True
    return {
        **reference.observations(graph, generator, n),
        **reference.carry_of(graph, generator, n),
        "first": generator.random(n) < 0.3,
        "noise": reference.noise_of(graph, generator, n),
        "explore": generator.uniform(0.0, 1.0, n).astype(np.float32),
        MASK: allowed,
    }


def acted(graph, kernel, given):
    out = reference.outputs_for(graph, len(given["explore"]))
    kernel.act(given, out)
    return out


def expected_of(graph, published, given):
    """What the mask makes of the network's outputs, row by row."""
    carry = reference.begun({spec.name: given[spec.name] for spec in graph.carry}, given["first"])
    outputs, _ = reference.head_and_value(graph, published, given, carry)
    actions, log_probs = [], []
    rows = zip(outputs, given[MASK], given["noise"], given["explore"], strict=True)
    if isinstance(graph.head, EpsilonGreedy):
        values = reference.action_values(graph.head, outputs)
        for q, (_, mask, (whether, which), explore) in zip(values, rows, strict=True):
            allowed = np.flatnonzero(mask)
            place = min(int(which * np.float32(len(allowed))), len(allowed) - 1)
            actions.append(allowed[place] if whether < explore else allowed[q[allowed].argmax()])
        return {"action": actions, "q": values}
    for logits, mask, noise, explore in rows:
        allowed = np.flatnonzero(mask)
        actions.append(allowed[(logits + explore * noise)[allowed].argmax()])
        log_probs.append(logits[actions[-1]] - np.log(np.exp(logits[allowed]).sum()))
    return {"action": actions, "log_prob": log_probs}


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", CHOOSING)
def test_masked_actions_agree_with_float64(name, level):
    graph = graph_of(name)
    kernel, published = loaded(graph, level)
    given = given_to(graph, np.random.default_rng(6), 130)
    out = acted(graph, kernel, given)
    for output, values in expected_of(graph, published, given).items():
        np.testing.assert_allclose(out[output], values, rtol=2e-5, atol=2e-5, err_msg=output)
    assert given[MASK][np.arange(130), out["action"]].all()


@pytest.mark.parametrize("name", CHOOSING)
def test_a_row_does_not_depend_on_how_many_are_in_the_call(name):
    graph = graph_of(name)
    kernel, _ = loaded(graph)
    given = given_to(graph, np.random.default_rng(5), 70)
    whole = acted(graph, kernel, given)
    for n in (1, 2, 7, 64, 65, 69):
        rows = slice(70 - n, 70)
        for output, values in acted(graph, kernel, {key: of[rows] for key, of in given.items()}).items():
            np.testing.assert_array_equal(values, whole[output][rows])


@pytest.mark.parametrize("name", CHOOSING)
def test_a_mask_that_allows_everything_changes_no_bit(name):
    graph = graph_of(name)
    given = given_to(graph, np.random.default_rng(4), 70)
    given[MASK][...] = True
    masked, plain = (acted(graph, loaded(graph, mask=mask)[0], given) for mask in (MASK, None))
    for output, values in masked.items():
        np.testing.assert_array_equal(values, plain[output])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8"])
@pytest.mark.parametrize("name", ["categorical, discrete observation", "values, dueling", "lstm, shared"])
def test_a_bound_policy_does_what_act_does(name, dtype):
    graph, generator = graph_of(name), np.random.default_rng(1)
    kernel, _ = loaded(graph)
    rows = [given_to(graph, generator, 3) for _ in range(2)]
    carry = {spec.name: rows[0][spec.name] for spec in graph.carry}
    given = {key: np.stack([row[key] for row in rows]) for key in (*graph.fields, "first", MASK)}
    # Any number but zero allows.
    given[MASK] = (given[MASK] * np.array(-2 if dtype == "int8" else 1)).astype(dtype)
    out = {key: np.stack([values] * 2) for key, values in reference.outputs_for(graph, 3).items()}
    bound = kernel.bind(given, out, seed=7, lanes=np.arange(3), carry=carry)
    for t, row in enumerate(rows):
        noise = generate(graph.noise, 7, np.arange(3), t)
        expected = acted(graph, kernel, {**row, **carry, "noise": noise, "explore": np.ones(3, np.float32)})
        bound.act(t, t)
        for output, values in expected.items():
            np.testing.assert_array_equal(out[output][t], values)


def constant(head, outputs):
    """A kernel of a network that gives these outputs whatever it sees."""
    graph = reference.without_value(reference.FLAT, head, ())
    kernel = PolicyKernel(layout_of(graph)._replace(mask=MASK))
    kernel.load({"actor": np.array([0.0] * (3 * len(outputs)) + outputs, np.float32)})
    return graph, kernel


def test_the_random_action_by_hand():
    graph, kernel = constant(EpsilonGreedy(5), [5.0, 4.0, 3.0, 2.0, 1.0])
    mask = np.array([[0, 1, 0, 1, 1]], np.uint8)
    # Of three allowed actions, u = 0, 0.3 takes the first, 0.34 and 0.6 the second, 0.67 and 1 - 2^-24 the third.
    u = np.array([0.0, 0.3, 0.34, 0.6, 0.67, 1.0 - 2.0**-24, 2.0, -1.0, np.nan], np.float32)
    n = len(u)
    given = {
        "obs": np.ones((n, 3), np.float32),
        "noise": np.stack([np.zeros(n, np.float32), u], axis=1),
        "explore": np.ones(n, np.float32),
        MASK: np.repeat(mask, n, axis=0),
    }
    assert acted(graph, kernel, given)["action"].tolist() == [1, 1, 3, 3, 4, 4, 4, 1, 1]
    given["explore"][...] = 0.0
    out = acted(graph, kernel, given)
    assert out["action"].tolist() == [1] * n
    # The mask hides no action value.
    assert out["q"][0].tolist() == [5.0, 4.0, 3.0, 2.0, 1.0]


def categorical(logits, mask, noise):
    graph = reference.actor_critic(reference.FLAT, Categorical(len(logits)), ())
    kernel = PolicyKernel(layout_of(graph)._replace(mask=MASK))
    actor = np.array([0.0] * (3 * len(logits)) + logits, np.float32)
    kernel.load({"actor": actor, "critic": np.zeros(4, np.float32)})
    given = {
        "obs": np.ones((1, 3), np.float32),
        "noise": np.array([noise], np.float32),
        "explore": np.ones(1, np.float32),
        MASK: np.array([mask], bool),
    }
    out = acted(graph, kernel, given)
    return out["action"][0], out["log_prob"][0]


def test_the_log_probability_by_hand():
    # Odds 1 : 3 between the allowed actions; the forbidden one has by far the largest logit.
    action, log_prob = categorical([np.log(1.0), 50.0, np.log(3.0)], [1, 0, 1], [0.0, 0.0, 0.0])
    assert action == 2
    np.testing.assert_allclose(log_prob, np.log(0.75), rtol=1e-6)
    # The only allowed action is certain.
    assert categorical([0.0, 50.0, 0.0], [1, 0, 0], [0.0, 0.0, 9.0]) == (0, 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_numbers_choose_no_forbidden_action(bad):
    for mask in ([0, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 0]):
        for place in range(4):
            noise = [0.0] * 4
            noise[place] = bad
            assert mask[categorical([0.0] * 4, mask, noise)[0]]
            assert mask[categorical(noise, mask, [0.0] * 4)[0]]
        graph, kernel = constant(EpsilonGreedy(4), [float(bad)] * 4)
        given = {
            "obs": np.ones((1, 3), np.float32),
            "noise": np.zeros((1, 2), np.float32),
            "explore": np.zeros(1, np.float32),
            MASK: np.array([mask], bool),
        }
        assert mask[acted(graph, kernel, given)["action"][0]]


def test_where_nothing_is_allowed_the_first_action_is_taken_and_all_are_equally_probable():
    action, log_prob = categorical([1.0, 2.0], [0, 0], [0.0, 0.0])
    assert action == 0
    np.testing.assert_allclose(log_prob, -np.log(2.0), rtol=1e-6)
    graph, kernel = constant(EpsilonGreedy(2), [1.0, 2.0])
    given = {
        "obs": np.ones((2, 3), np.float32),
        "noise": np.array([[0.0, 0.9]] * 2, np.float32),
        "explore": np.array([0.0, 1.0], np.float32),
        MASK: np.zeros((2, 2), bool),
    }
    assert acted(graph, kernel, given)["action"].tolist() == [0, 0]


@pytest.mark.parametrize(
    "mask",
    [
        np.ones((2, 3, 3), bool),
        np.ones((2, 4, 2), bool),
        np.ones((1, 3, 2), bool),
        np.ones((2, 3, 2), np.float32),
        np.ones((2, 3, 4), bool)[:, :, ::2],
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask):
    kernel, _ = loaded(reference.GRAPHS["categorical"])
    with pytest.raises(ValueError, match="mask"):
        kernel.bind({"obs": np.zeros((2, 3, 3), np.float32), MASK: mask}, {})


@pytest.mark.parametrize("name", ["gaussian", "squashed", "deterministic"])
def test_a_continuous_action_has_no_mask(name):
    with pytest.raises(ValueError, match="mask"):
        PolicyKernel(layout_of(reference.GRAPHS[name])._replace(mask=MASK))
