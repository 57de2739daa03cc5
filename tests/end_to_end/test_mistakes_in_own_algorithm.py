"""A mistake in a user's algorithm is one line before a run begins, which names the place and what to write."""

import re
import shutil
import sys
from pathlib import Path

import pytest

import penstock
from penstock.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm"
SETTINGS = {"env": "CartPole-v1", "timesteps": 512, "num_envs": 2, "num_steps": 64, "mini_batch_size": 128}


@pytest.fixture
def altered(tmp_path, monkeypatch):
    """Copies the example with one text replaced, trains with it in this process, and gives what is refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    before = set(sys.modules)

    def refusal(file: str, old: str, new: str, **settings: object) -> str:
        folder = Path(shutil.copytree(EXAMPLE, tmp_path / "theirs"))
        text = (folder / file).read_text()
        assert text.count(old) == 1, old
        (folder / file).write_text(text.replace(old, new))
        config = {**SETTINGS, "algo": "theirs", "runtime": "inline", "log_dir": str(tmp_path / "logs"), **settings}
        with pytest.raises(ConfigError) as refused:
            penstock.train(config, quiet=True)
        assert not (tmp_path / "logs").exists()
        return str(refused.value)

    yield refusal
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "theirs":
            sys.modules.pop(name)


SPEC = "algorithm theirs: the AlgorithmSpec of theirs.spec: "
PROGRESS = 'ArraySpec("progress", (), "float64")'


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            f"            {PROGRESS},\n",
            "",
            f"state lacks progress, the share of the run that is over; write {PROGRESS}",
        ),
        (
            PROGRESS,
            'ArraySpec("progress", (1,), "float64")',
            "state has progress as float64 (1,); progress, the share",
        ),
        (
            "Schedule(1,",
            "Schedule(1, kl_target=0.1, mini_batch_size=",
            "state lacks kl_coef, which is adapted to kl_target",
        ),
        (PROGRESS, 'ArraySpec("progress", (), "float")', "the dtype of progress in state is 'float'; write float32,"),
        (PROGRESS, 'ArraySpec("progress", 1, "float64")', "the shape of progress in state is 1; write a tuple"),
        (PROGRESS, f'{PROGRESS}, ArraySpec("steps", (), "int64")', "state names steps, and a checkpoint has an array"),
        (PROGRESS, f"{PROGRESS}, {PROGRESS}", "state names progress twice"),
        ("            *graph.published(),\n", "", "state lacks actor, which the policy publishes; write ArraySpec("),
        (
            '"action", "advantage"',
            '"action", "advantages"',
            "minibatch names advantages, which neither rows nor target",
        ),
        ('topology="on_policy"', 'topology="on_polcy"', "there is no topology 'on_polcy'; write on_policy, async_on_p"),
        ('topology="on_policy"', 'topology="off_policy"', "topology 'off_policy' learns from a table, and table is No"),
        ('(ArraySpec("value", (), "float32"),)', '(ArraySpec("q", (), "float32"),)', "row names q, which the policy d"),
        (
            '(ArraySpec("value", (), "float32"),)',
            'ArraySpec("value", (), "float32")',
            "row is a ArraySpec; write a tup",
        ),
        ('(ArraySpec("value", (), "float32"),)', '(ArraySpec("value", (1,), "float32"),)', "row has value as float32"),
        (
            'ArraySpec("target", (), "float32")',
            'ArraySpec("reward", (), "float32")',
            "targets names reward, which each",
        ),
        ("Schedule(1, config", "Schedule(0, config", "schedule.epochs is 0; write a whole number of at least 1"),
    ],
)
def test_a_spec_that_does_not_fit(altered, old: str, new: str, says: str) -> None:
    said = altered("spec.py", old, new)
    assert said.startswith(SPEC + says)
    assert "\n" not in said


def test_a_weight_that_no_metric_adapts(altered) -> None:
    text = (EXAMPLE / "spec.py").read_text()
    old = text[text.index(PROGRESS) : text.index("config.mini_batch_size)")]
    new = old.replace(PROGRESS, f'{PROGRESS}, ArraySpec("kl_coef", (), "float32")')
    said = altered("spec.py", old, new.replace("Schedule(1, ", "Schedule(1, kl_target=0.1, mini_batch_size="))
    assert said.endswith("build in theirs.learn has no phase with the metric 'kl', by which kl_coef is adapted")


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (
            "spec.py",
            "body = Body(",
            "body = config.width; Body(",
            r"spec in theirs.spec fails: AttributeError: .*'width'.*",
        ),
        (
            "spec.py",
            "state[network.name] =",
            'state["net"] =',
            r"init_state in theirs.spec gives 'net', which the state",
        ),
        (
            "learn.py",
            "    return Algorithm(\n",
            "    return dict(\n",
            r"build in theirs.learn gives a dict; return a pens",
        ),
        (
            "learn.py",
            "phases=(Phase(",
            "phases=repr((Phase)(",
            r"build in theirs.learn gives a str as phases; write a tuple",
        ),
        (
            "learn.py",
            "act=policy.act",
            "act=lambda state, inputs: {}",
            r"act in theirs.learn does not give action, whi",
        ),
        ("learn.py", '"target": target}', '"targets": target}', r"targets in theirs.learn gives 'targets', which targ"),
        ("learn.py", ', "target": target}', "}", r"targets in theirs.learn does not give target, which targets of the"),
        (
            "learn.py",
            '"target": target}',
            '"target": target[0]}',
            r"targets in theirs.learn gives target with the shape ",
        ),
        (
            "learn.py",
            'minibatch["target"]',
            'minibatch["value"]',
            r"gradients of phase 'reinforce' in theirs.learn read",
        ),
        (
            "learn.py",
            'changed["adam_step"], config.lr',
            'state["step"], config.lr',
            r"apply of phase 'reinforce' in the",
        ),
        (
            "learn.py",
            "return changed",
            'return {"lr": 1.0}',
            r"apply of phase 'reinforce' in theirs.learn gives 'lr', ",
        ),
        (
            "learn.py",
            "return changed",
            "return {}",
            r"apply of phase 'reinforce' in theirs.learn does not give actor, which has gradients; return the changed",
        ),
        (
            "learn.py",
            "return changed",
            'return changed | {"actor": changed["actor"].double()}',
            r"apply of phase 'reinforce' in theirs.learn gives actor as float64; in the state it is float32$",
        ),
        (
            "learn.py",
            "return changed",
            'return changed | {"adam_step": 1}',
            r"apply of phase 'reinforce' in theirs.learn gives adam_step as int; in the state it is int64$",
        ),
        (
            "learn.py",
            "return Gradients(found, metrics, {})",
            "return found",
            r"gradients of phase 'reinforce' in theirs",
        ),
        (
            "learn.py",
            "return Gradients(found, metrics, {})",
            "return Gradients(found, None, {})",
            r"gradients of phase 'reinforce' in theirs.learn gives a NoneType; return a dict of arrays by name$",
        ),
        (
            "learn.py",
            "return Gradients(found, metrics, {})",
            "return Gradients(found, metrics, None)",
            r"gradients of phase 'reinforce' in theirs.learn gives a NoneType; return a dict of arrays by name$",
        ),
        (
            "learn.py",
            "        act=policy.act,\n",
            "        act=policy.act,\n        recompute=lambda state, rollout: None,\n",
            r"recompute in theirs.learn gives a NoneType; return a dict of arrays by name$",
        ),
        (
            "learn.py",
            "lambda state, rollout: {}",
            "lambda state, rollout: None",
            r"statistics in theirs.learn gives a No",
        ),
        (
            "learn.py",
            "policy.graph.networks])",
            'policy.graph.networks] + ["x"])',
            r"gradients of phase 'reinforce' in the",
        ),
    ],
)
def test_a_function_that_gives_something_else(altered, file: str, old: str, new: str, says: str) -> None:
    said = altered(file, old, new)
    assert re.match(f"algorithm theirs: {says}", said)
    assert "\n" not in said
