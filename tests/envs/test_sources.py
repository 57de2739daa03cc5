"""From a name to a source: finding it, sending it to another process, and the one-line errors."""

import functools
import importlib.metadata
import importlib.util
import pickle
import subprocess
import sys
import threading

import gymnasium
import numpy as np
import pytest

from penstock.envs.names import display_name, find, reference
from penstock.envs.sources import open_source, probe
from penstock.errors import EnvError, SpaceError
from penstock.types import Box, Discrete
from tests.environments import ClockEnv, ClockVectorEnv, make_clocks


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    written = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        written.append(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


def clock(seed=None):
    return ClockEnv()


def test_an_id():
    profile = probe("Pendulum-v1")
    assert profile.name == "Pendulum-v1"
    assert profile.kind == "scalar"
    assert profile.same_step
    assert profile.restorable
    assert profile.spaces.obs == (("obs", Box((3,), "float32", (-1, -1, -8), (1, 1, 8))),)
    assert profile.spaces.action == Box((1,), "float32", (-2,), (2,))


def test_a_callable_a_class_and_a_name_of_either():
    for env in (clock, ClockEnv, lambda: clock() or None, functools.partial(clock), "tests.environments:ClockEnv"):
        profile = probe(env)
        assert profile.spaces.action == Discrete(2)
        assert profile.kind == "scalar"


def test_a_module_in_the_working_directory(module):
    module("here_alone", "from tests.environments import ClockEnv\nclass Inner:\n    Env = ClockEnv\n")
    assert probe("here_alone:ClockEnv").name == "here_alone:ClockEnv"
    assert probe("here_alone:Inner.Env").spaces.action == Discrete(2)


def test_a_module_that_is_almost_there(module):
    module("my_lanes", "")
    with pytest.raises(EnvError, match=r"no module named my_lane is installed or in .*; did you mean my_lanes"):
        probe("my_lane:make")
    with pytest.raises(EnvError, match=r"^environment my_lanes\.py:make: .*; write the module without \.py: my_lanes$"):
        probe("my_lanes.py:make")
    with pytest.raises(EnvError, match=r"^environment \./my_lanes\.py:make: .* with dots and without \.py: my_lanes$"):
        probe("./my_lanes.py:make")
    with pytest.raises(EnvError, match=r"^unknown environment 'my_lanes\.make'; did you mean my_lanes:make"):
        probe("my_lanes.make")


def test_a_module_that_registers_an_id(module):
    module(
        "registers",
        "import gymnasium\n"
        "gymnasium.register('penstock-test/Clock-v3', 'tests.environments:ClockEnv', max_episode_steps=7)\n",
    )
    lanes = open_source("registers:penstock-test/Clock-v3", vector=False, num_lanes=1)
    lanes.reset([0])
    ends = [lanes.step(np.array([0]), lambda lane: 0).truncated[0] for _ in range(7)]
    assert ends == [False] * 6 + [True]
    gymnasium.registry.pop("penstock-test/Clock-v3")


def test_an_entry_point(monkeypatch):
    point = importlib.metadata.EntryPoint("clock", "tests.environments:ClockEnv", "penstock.envs")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == "penstock.envs" else [])
    assert probe("clock").spaces.action == Discrete(2)
    with pytest.raises(EnvError, match="unknown environment 'clok'; did you mean clock"):
        find("clok")


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("CartPol-v1", "^unknown environment 'CartPol-v1'; did you mean CartPole-v1, CartPole-v0"),
        ("Pendulum", r"^unknown environment 'Pendulum'; did you mean Pendulum-v1\b"),
        ("LunarLander-v2", "^unknown environment 'LunarLander-v2'; did you mean LunarLander-v3"),
        (
            "zzzzzzz",
            "^unknown environment 'zzzzzzz'; give a Gymnasium id, module:Id, .* in Python the callable itself$",
        ),
        ("", "^unknown environment ''"),
        (":make", "^environment :make names no module before its colon$"),
        ("nowhere.at_all:make", "^environment nowhere.at_all:make: no module named nowhere .*; .* in PYTHONPATH$"),
        ("tests.nowhere:make", "^environment tests.nowhere:make: no module named tests.nowhere is"),
        ("tests.environment:make", "; did you mean tests.environments"),
        ("miniworld:make", r"^environment .*: no module named miniworld is installed .*; pip install 'miniworld'$"),
        (
            "tests.environments:Clock",
            "^tests.environments:Clock: module .* has no Clock; did you mean ClockEnv",
        ),
        (
            "tests.environments:ClockEnv.nothing",
            "^tests.environments:ClockEnv.nothing: module .* has no ClockEnv.nothing",
        ),
        (
            "tests.environments:__all__.attribute",
            "^tests.environments:__all__.attribute: module .* has no __all__.attri",
        ),
        ("tests.environments:__all__", r"^tests.environments:__all__ is \['ClockEnv'.* cannot be called"),
        ("tests.environments:Nothing-v0", "^module tests.environments registers no environment Nothing-v0$"),
        ("gymnasium:CartPol-v1", "registers no environment CartPol-v1; did you mean gymnasium:CartPole-v1"),
        ("gymnasium:", "^environment gymnasium: names nothing behind its colon$"),
    ],
)
def test_an_unknown_name_gets_one_line(env, says):
    with pytest.raises(EnvError, match=says) as caught:
        probe(env)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "package", "extra"),
    [
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("PongNoFrameskip-v4", "ale_py", "atari"),
        ("Hopper-v5", "mujoco", "mujoco"),
        ("LunarLander-v3", "Box2D", "box2d"),
    ],
)
def test_a_missing_package_gets_the_extra_to_install(monkeypatch, env, package, extra):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == package else there(name, *rest)
    )
    with pytest.raises(EnvError, match=rf"pip install 'penstock\[{extra}\]'$"):
        probe(env)


def test_a_module_that_cannot_be_imported(module):
    module("broken_one", "import not_to_be_found_anywhere\n")
    module("broken_two", "raise RuntimeError('two\\nlines')\n")
    with pytest.raises(
        EnvError, match=r"broken_one:make: broken_one cannot be imported: ModuleNotFoundError: No module"
    ):
        find("broken_one:make")
    says = r"broken_two:make: broken_two cannot be imported: RuntimeError: two lines \(.*/broken_two.py, line 1\)$"
    with pytest.raises(EnvError, match=says):
        find("broken_two:make")


def test_where_one_is_taken_several_are_refused():
    with pytest.raises(EnvError, match=r"names several; give one$"):
        find("one:make,two:make")


def test_an_environment_that_cannot_be_made_keeps_its_own_error():
    def raises():
        raise FileNotFoundError("no such level:\n  seven")

    with pytest.raises(
        EnvError, match=r"^environment raises cannot be made: FileNotFoundError: no such level: seven$"
    ) as caught:
        probe(raises)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert caught.value.__cause__.__traceback__ is not None


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (lambda: 5, "returned 5, which has no observation_space and no action_space and no reset and no step"),
        (lambda: ClockVectorEnv(2), "returned a vector environment: give its factory a parameter num_envs"),
        (lambda num_envs: ClockEnv(), "takes num_envs, but returned .*, which is no vector environment"),
        (lambda num_envs: ClockVectorEnv(7), "has 7 lanes instead of 2"),
    ],
)
def test_a_factory_that_returns_something_else(env, says):
    with pytest.raises(EnvError, match=says):
        probe(env)


def test_a_factory_that_returns_one_environment_twice():
    env = ClockEnv()
    with pytest.raises(EnvError, match="returned one environment twice"):
        open_source(lambda: env, vector=False, num_lanes=2)


def test_a_factory_with_num_envs_is_called_once():
    lanes = open_source("tests.environments:make_clocks", vector=False, num_lanes=5)
    assert lanes.num_lanes == 5
    assert not lanes.same_step
    assert probe(make_clocks).kind == "vector"
    assert probe(ClockVectorEnv).kind == "vector"


def test_a_vector_environment_that_is_seeded_when_it_is_made():
    given = []

    class SeededWhenMade(ClockVectorEnv):
        def reset(self, *, seed=None, options=None):
            given.append(seed)
            return super().reset(options=options)

    def make(num_envs, seed):
        given.append(seed)
        return SeededWhenMade(num_envs)

    open_source(make, vector=False, num_lanes=1, seed=3).reset([7])
    assert given == [3, None]


def test_vector_asks_for_the_vector_environment_of_an_id():
    assert probe("CartPole-v1", vector=True).kind == "vector"
    with pytest.raises(EnvError, match="Pendulum-v1 has no vector environment of its own: leave out vector_env"):
        probe("Pendulum-v1", vector=True)
    with pytest.raises(EnvError, match="makes one environment at a time: give it a parameter num_envs"):
        probe("tests.environments:ClockEnv", vector=True)


def test_autoreset_is_disabled_where_an_id_allows_it(monkeypatch):
    gymnasium.register("penstock-test/Clocks-v0", vector_entry_point="tests.environments:ClockVectorEnv")
    try:
        assert probe("penstock-test/Clocks-v0", vector=True).restorable
    finally:
        gymnasium.registry.pop("penstock-test/Clocks-v0")


def test_what_was_made_is_closed_when_something_goes_wrong():
    closed = []

    class Closes(ClockEnv):
        observation_space = gymnasium.spaces.Text(5)

        def close(self):
            closed.append(self)

    with pytest.raises(SpaceError):
        probe(Closes)
    assert len(closed) == 1


def test_a_probe_closes_what_it_made():
    closed = []

    class Closes(ClockEnv):
        def close(self):
            closed.append(self)

    probe(Closes)
    assert len(closed) == 1


def test_a_probe_that_refuses_closes_what_it_made():
    closed = []

    class Gone(ClockEnv):
        def reset(self, **_):
            raise EnvError("the game is gone")

        def close(self):
            closed.append(self)

    with pytest.raises(EnvError, match=r"^the game is gone$"):
        probe(Gone)
    assert len(closed) == 1


def test_travel_by_name_where_there_is_one():
    assert reference("CartPole-v1") == "CartPole-v1"
    assert reference(ClockEnv) == "tests.environments:ClockEnv"
    assert reference(b"pickled") == b"pickled"


def test_travel_by_value_otherwise():
    class Local(ClockEnv):
        LIMIT = 3

    for env in (Local, lambda: Local() or None, functools.partial(Local)):
        pickled = reference(env)
        assert isinstance(pickled, bytes)
        assert probe(pickled).spaces.action == Discrete(2)
        assert probe(pickled).name in {"Local", "lambda"}


def test_a_class_in_main_travels_by_value(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from penstock.envs.names import reference\n"
        "from tests.environments import ClockEnv\n"
        "class Mine(ClockEnv): pass\n"
        "sys.stdout.buffer.write(reference(Mine))\n"
    )
    pickled = subprocess.run([sys.executable, script], check=True, capture_output=True).stdout
    assert probe(pickled).name == "Mine"
    assert pickle.loads(pickled).__module__ == "__main__"


def test_what_cannot_travel_gets_one_line():
    lock = threading.Lock()

    def holds_a_lock():
        return lock and ClockEnv()

    with pytest.raises(EnvError, match=r"^environment holds_a_lock cannot be sent to another process") as caught:
        reference(holds_a_lock)
    assert "\n" not in str(caught.value)


def test_names_for_people():
    assert display_name("ALE/Pong-v5") == "ALE/Pong-v5"
    assert display_name(ClockEnv) == "ClockEnv"
    assert display_name(functools.partial(clock, seed=1)) == "clock"
    assert display_name(lambda: None) == "lambda"


def test_a_users_own_environment_needs_little(tmp_path):
    """An environment that uses no library takes its first step without Gymnasium, torch or pygame."""
    (tmp_path / "bare.py").write_text(
        "import numpy as np\n"
        "class Box:\n"
        "    shape, dtype, low, high = (1,), np.dtype('float32'), np.zeros(1), np.ones(1)\n"
        "class Discrete:\n"
        "    n = 2\n"
        "class Bare:\n"
        "    observation_space, action_space = Box(), Discrete()\n"
        "    def reset(self, seed=None): return np.zeros(1, np.float32), {}\n"
        "    def step(self, action): return np.zeros(1, np.float32), 0.0, False, False, {}\n"
    )
    code = (
        "import sys, numpy as np\n"
        "from penstock.envs.sources import open_source\n"
        "lanes = open_source('bare:Bare', vector=False, num_lanes=2)\n"
        "lanes.reset([0, 1]); lanes.step(np.zeros(2, np.int64), None)\n"
        "print(sorted({'gymnasium', 'gym', 'torch', 'pygame', 'cloudpickle'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert run.stdout == "[]\n"


def test_a_gymnasium_environment_needs_no_torch_and_no_pygame():
    code = (
        "import sys, numpy as np\n"
        "from penstock.envs.sources import open_source\n"
        "lanes = open_source('CartPole-v1', vector=False, num_lanes=2)\n"
        "lanes.reset([0, 1]); lanes.step(np.zeros(2, np.int64), None)\n"
        "print(sorted({'gym', 'torch', 'pygame', 'matplotlib'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "[]\n"


class FailsToReset(gymnasium.Env):
    """Cannot begin an episode."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        raise OSError("the simulator is not installed")


class ShowsTooMuch(FailsToReset):
    """Its observations are larger than its space."""

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}


@pytest.mark.parametrize(("env", "why"), [(FailsToReset, "the simulator is not installed"), (ShowsTooMuch, "obs")])
def test_an_environment_that_cannot_be_reset_is_refused_beforehand(env, why):
    with pytest.raises(EnvError, match=f"{env.__name__} cannot be reset: .*{why}"):
        probe(env)


def test_what_cannot_be_closed_does_not_hide_why_the_others_could_not_be_made() -> None:
    closed = []

    class Stubborn(ClockEnv):
        def close(self) -> None:
            closed.append(self)
            raise RuntimeError("it will not close")

    made = [Stubborn(), Stubborn()]

    def make() -> ClockEnv:
        if not made:
            raise ValueError("only two of them")
        return made.pop()

    with pytest.raises(EnvError, match="only two of them"):
        open_source(make, vector=False, num_lanes=3)
    assert len(closed) == 2
