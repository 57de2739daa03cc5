import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import penstock
from penstock.algorithm_lookup import find_algorithm
from penstock.cli import COMMANDS, main, output
from penstock.config.sources import Setting, from_mapping
from penstock.errors import ConfigError, NodeError, PenstockError
from penstock.memory.spans import SpanRing
from penstock.metrics.trace import ring_path
from penstock.registry import ALGORITHMS
from penstock.saved_runs.run_folder import RunFolder

EVALUATION = SimpleNamespace(
    mean_return=-153.2,
    std_return=80.1,
    mean_length=200.0,
    episodes=100,
    metrics={},
    env="Pendulum-v1",
    seed=0,
    checkpoint="update-00000050",
    remark="",
)


def result(path, interrupted=False):
    evaluation = None if interrupted else EVALUATION
    return SimpleNamespace(
        run_folder=path,
        evaluation=evaluation,
        steps=50_000,
        updates=3,
        interrupted=interrupted,
        not_restored=0,
        notes=(),
        resumable=True,
    )


@pytest.fixture
def trains(monkeypatch, tmp_path):
    """Replaces training; gives the list of configs that it was called with."""
    configs = []

    def train(config, *, run_name, processes):
        configs.append(config)
        return result(tmp_path / "my run")

    monkeypatch.setattr("penstock.run.train", train)
    return configs


@pytest.fixture
def run(tmp_path):
    folder = RunFolder.fresh(tmp_path, "Pendulum-v1", "ppo")
    folder.make()
    folder.write_config(from_mapping({"env": "Pendulum-v1"}))
    return folder


def test_train_calls_train_with_the_config_and_says_where_everything_is(trains, tmp_path, capsys):
    assert main(["train", "--env", "Pendulum-v1", "--lr", "1e-3"]) == 0
    assert trains == [from_mapping({"env": "Pendulum-v1", "lr": 1e-3})]
    said = capsys.readouterr().out
    assert "return -153.2 ± 80.1 over 100 greedy episodes" in said
    assert f"penstock eval '{tmp_path}/my run'" in said


@pytest.mark.parametrize(
    ("argv", "preset"),
    [
        (["--env", "ALE/Pong-v5"], "atari"),
        (["--env", "BreakoutNoFrameskip-v4", "--algo", "dqn"], "atari-dqn"),
        (["--env", "ALE/Pong-v5", "--algo", "apex"], "atari-apex"),
        (["--env", "ALE/Pong-v5", "--algo", "impala"], "atari-impala"),
        (["--env", "ALE/Pong-v5", "--algo", "appo"], "atari --algo appo"),
        (["--preset", "atari", "--env", "ALE/Breakout-v5", "--lr", "1e-4"], None),
        (["--preset", "atari-impala"], None),
        (["--preset", "atari", "--algo", "appo"], None),
        (["--env", "CartPole-v1"], None),
        (["--env", "CartPole-v1", "--algo", "r2d2"], None),
        (["--env", "Pendulum-v1", "--algo", "sac"], None),
    ],
)
def test_a_game_at_the_defaults_points_to_the_preset_for_games(trains, capsys, argv, preset):
    assert main(["train", *argv]) == 0
    said = capsys.readouterr().out
    assert said.count("Atari: these are not the usual settings") == (preset is not None)
    assert preset is None or f"penstock train --preset {preset} --env {argv[1]}\n" in said


def test_of_a_game_that_is_unknown_nothing_is_said_but_that(trains, capsys):
    assert main(["train", "--env", "ALE/Pongg-v5"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("penstock: error: unknown environment 'ALE/Pongg-v5'; did you mean ALE/Pong-v5")
    assert not trains


@pytest.mark.parametrize("algo", ["a2c", "a3c", "r2d2"])
def test_a_game_whose_algorithm_has_no_preset_for_games_says_what_to_set(trains, capsys, algo):
    words = ["train", "--env", "ALE/Pong-v5", "--algo", algo]
    assert main(words) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "not the usual settings" in line)
    told = line.partition(f"{algo} has no preset for them: give ")[2].split()
    # They can be typed, and then nothing is missing.
    assert main([*words, *told]) == 0
    assert "not the usual settings" not in capsys.readouterr().out
    (before, after) = (config.algorithm for config in trains)
    assert len(told) == 2 * sum(value != getattr(after, name) for name, value in vars(before).items())


def test_every_algorithm_whose_rewards_can_be_cut_says_what_games_need(trains, capsys):
    cut = [algo for algo in ALGORITHMS.names() if hasattr(find_algorithm(algo).config, "clip_reward")]
    assert {"ppo", "impala", "r2d2"} <= set(cut)
    for algo in cut:
        assert main(["train", "--env", "ALE/Pong-v5", "--algo", algo]) == 0
        assert capsys.readouterr().out.count("Atari: these are not the usual settings") == 1, algo


def test_a_module_of_ones_own_is_announced_before_it_is_exported(trains, run, tmp_path, monkeypatch, capsys):
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "nets.py").write_text("def make_policy(obs_space, action_space): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    model = "my_package.nets:make_policy"
    line = f"exporting {model} to ONNX, so that processes that act need no torch; this takes some seconds\n"
    assert main(["train", "--env", "CartPole-v1", "--model", model]) == 0
    assert capsys.readouterr().out.startswith(line)
    run.write_config(from_mapping({"env": "CartPole-v1", "model": model}))
    monkeypatch.setattr("penstock.run.resume", lambda path, **asked: result(path))
    assert main(["resume", str(run.path)]) == 0
    assert capsys.readouterr().out.startswith(line)
    monkeypatch.setattr("penstock.run.evaluate", lambda path, **asked: EVALUATION)
    assert main(["eval", str(run.path), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["episodes"] == 100
    assert line in said.err


def test_an_interrupted_run_exits_with_130_and_says_how_to_continue(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("penstock.run.train", lambda *_, **__: result(tmp_path, interrupted=True))
    assert main(["train", "--env", "X"]) == 130
    assert f"penstock resume {tmp_path}" in capsys.readouterr().out


def test_a_run_that_was_interrupted_before_its_first_checkpoint_is_not_said_to_go_on(monkeypatch, tmp_path, capsys):
    found = result(tmp_path, interrupted=True)
    found.resumable = False
    monkeypatch.setattr("penstock.run.train", lambda *_, **__: found)
    assert main(["train", "--env", "X"]) == 130
    said = f"stopped after 50,000 steps, before the first checkpoint; its policy is in {tmp_path}\n"
    assert capsys.readouterr().out == said


def test_a_run_that_is_refused_when_it_is_launched_leaves_no_folder(monkeypatch, tmp_path, capsys):
    def refused(program, processes):
        raise ConfigError("machine b has penstock 0.1, and the launcher's machine has 0.2; install the same there")

    monkeypatch.setattr("penstock.runtime.inline.launch", refused)
    words = ["train", "--env", "CartPole-v1", "--runtime", "inline", "--log_dir", str(tmp_path)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "install the same there" in said
    assert "run folder" not in said
    assert not any(path.is_dir() for path in tmp_path.glob("*"))


def test_a_run_without_an_update_says_so_when_it_is_interrupted(monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.run.training.prepare", interrupted)
    assert main(["train", "--env", "CartPole-v1"]) == 130
    said = capsys.readouterr()
    assert (said.out, said.err) == ("stopped before the first update; no run folder is kept\n", "")


def test_a_signal_while_python_shuts_down_changes_nothing():
    """The first callback to be registered is the last to be called."""
    program = (
        "import atexit, os, signal, sys; atexit.register(os.kill, os.getpid(), signal.SIGINT); "
        "from penstock.cli import main; sys.exit(main(['--version']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_resume_and_eval_find_the_run(monkeypatch, run, capsys):
    calls = []

    def resume(path, *, processes, **options):
        calls.append((path, options))
        return result(path)

    def evaluate(path, *, processes, **options):
        calls.append((path, options))
        return EVALUATION

    monkeypatch.setattr("penstock.run.resume", resume)
    monkeypatch.setattr("penstock.run.evaluate", evaluate)
    logs = ["--log_dir", str(run.path.parent)]
    assert main(["resume", "latest", "--checkpoint", "50", "--timesteps", "2000000", *logs]) == 0
    assert (
        main(["eval", run.name, "--episodes", "7", "--seed", "3", "--num_workers", "2", "--keep", "kept", *logs]) == 0
    )
    asked = {"episodes": 7, "seed": 3, "num_workers": 2, "keep": "kept"}
    asked |= {"runtime": None, "distributed": False, "address": None}
    assert calls == [
        (run.path, {"checkpoint": "50", "settings": {"timesteps": Setting("2000000", "--timesteps", text=True)}}),
        (run.path, {**asked, "checkpoint": None, "quiet": False}),
    ]
    assert "Pendulum-v1, update-00000050: return -153.2" in capsys.readouterr().out
    assert main(["eval", str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == vars(EVALUATION)


def test_draw_prints_what_run_draws(monkeypatch, capsys):
    monkeypatch.setattr("penstock.run.draw", lambda config: f"program of {config.run.env}")
    assert main(["draw", "--env", "X"]) == 0
    assert capsys.readouterr().out == "program of X\n"


def test_plot_says_where_the_picture_is(run, capsys):
    assert main(["plot", "--logdir", str(run.path.parent), "--save_fig", "True"]) == 2
    assert "has reported anything yet" in capsys.readouterr().err
    (run.path / "metrics.jsonl").write_text('{"update": 1, "steps": 10, "time_s": 1.0, "rollout/return_mean": 1.0}\n')
    assert main(["plot", run.path.name, "--logdir", str(run.path.parent)]) == 0
    assert capsys.readouterr().out == f"curves: {run.path / 'curves.png'}\n"
    assert main(["plot", "--logdir", str(run.path.parent), "--save_fig", "True"]) == 0
    assert capsys.readouterr().out == f"curves: {run.path.parent / 'curves.png'}\n"


def test_trace_of_a_run_without_one_says_how_to_get_one(run, capsys):
    assert main(["trace", str(run.path)]) == 2
    assert capsys.readouterr().err == (
        f"penstock: error: run {run.name} kept no trace; penstock train ... --trace True keeps one\n"
    )


def test_trace_says_where_it_is(run, capsys):
    ring = SpanRing.at(ring_path(run.trace, "learner"))
    ring.add(0, 1_000_000, ring.name("learner"), ring.name("step"))
    ring.close()
    out = run.path / "out.json"
    assert main(["trace", run.name, "--out", str(out), "--log_dir", str(run.path.parent)]) == 0
    assert str(out) in capsys.readouterr().out
    assert len(json.loads(out.read_text())["traceEvents"]) == 5


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["tran"], "unknown command 'tran'; did you mean train"),
        (["train", "--env", "X", "--lrr", "1"], "unknown flag --lrr; did you mean --lr"),
        (["train", "--env", "X", "--distributed", "True", "--runtime", "inline"], "--distributed True is for"),
        (["train", "--env", "X", "--address", "auto"], "give --distributed True, and no other --runtime"),
        (["train", "--env", "X", "--runtime", "inline", "--address", "auto"], "True, and no other --runtime"),
        (["train", "--env", "X", "--runtime", "ray", "--distributed", "False"], "--distributed False does not go with"),
        (["train", "--env", "X", "--num_envs", "8", "--num_workers", "3"], "the nearest number that does is 2"),
        (["eval", "nothing", "--log_dir", "/nowhere"], "there is no run nothing"),
        (["algos", "more"], "unexpected argument 'more'"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(argv, says, capsys):
    assert main(argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("penstock: error: ")
    assert says in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (
            NodeError("env.0", "Traceback (most recent call last):\n ...\nValueError: theirs\n"),
            1,
            (
                "Traceback (most recent call last):\n ...\nValueError: theirs\n"
                "penstock: node env.0 failed; its traceback is above\n"
            ),
        ),
        (
            NodeError("env.0", "no sign of life\nThread 0x1 (most recent call first):\n ...\n"),
            1,
            (
                "no sign of life\nThread 0x1 (most recent call first):\n ...\n"
                "penstock: node env.0 failed; its stacks are above\n"
            ),
        ),
        (
            NodeError("env.0", "started 3 times; at last:\nprocess env.0 was ended by SIGSEGV"),
            1,
            "penstock: error: node env.0 failed: started 3 times; at last: process env.0 was ended by SIGSEGV\n",
        ),
        # No node is at fault.
        (NodeError("relay", "penstock.errors.LostError: no head"), 1, "penstock: error: no head\n"),
        (PenstockError("slot lost"), 1, "penstock: error: slot lost\n"),
        (ConfigError("wrong"), 2, "penstock: error: wrong\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_each_failure_has_its_exit_code(monkeypatch, capsys, error, code, says):
    def fail(config, *, run_name, processes):
        raise error

    monkeypatch.setattr("penstock.run.train", fail)
    assert main(["train", "--env", "X"]) == code
    assert capsys.readouterr().err.startswith(says)


@pytest.mark.parametrize(
    ("detail", "line"),
    [
        ("Traceback ...\npenstock.errors.BadDataError: env.0: obs is nan\n", "env.0: obs is nan"),
        ("Traceback ...\npenstock.errors.CheckpointError: cannot write: No space left", "cannot write: No space left"),
        ("Traceback ...\npenstock.errors.DamagedError: board policy: altered", "board policy: altered"),
        ("Traceback ...\npenstock.errors.FencedError: slot 3", None),
        ("Traceback ...\nmine.errors.BadDataError: what", None),
        ("Traceback ...\npenstock.errors.BadDataError", None),
        ("", None),
        (
            "During handling of the above exception, another exception occurred:\n\npenstock.errors.EnvError: what",
            None,
        ),
    ],
)
def test_a_node_whose_error_says_it_all_is_quoted_without_its_traceback(detail, line):
    assert NodeError("env.0", detail).line == line


def test_a_failure_is_one_line_and_what_is_left_of_the_run(monkeypatch, capsys):
    def fail(config, *, run_name, processes):
        error = NodeError("env.0", "Traceback ...\npenstock.errors.BadDataError: env.0: obs of lane 1 is nan")
        error.add_note("it has no checkpoint")
        raise error

    monkeypatch.setattr("penstock.run.train", fail)
    assert main(["train", "--env", "X"]) == 1
    assert capsys.readouterr().err == (
        "penstock: error: node env.0: obs of lane 1 is nan\npenstock: it has no checkpoint\n"
    )


@pytest.mark.parametrize(
    ("argv", "out", "err", "code"),
    [
        (["--help"], "/dev/full", None, 1),
        (["tran"], None, "/dev/full", 2),
        (["--help"], "/dev/full", "/dev/full", 1),
        (["tran"], "/dev/full", "/dev/full", 2),
    ],
)
def test_an_output_that_cannot_be_written_is_one_line_and_keeps_the_exit_code(tmp_path, argv, out, err, code):
    heard = tmp_path / "heard"
    with Path(out or heard).open("w") as stdout, Path(err or heard).open("w") as stderr:
        done = subprocess.run([sys.executable, "-m", "penstock", *argv], stdout=stdout, stderr=stderr, check=False)
    assert done.returncode == code
    if out and not err:
        assert heard.read_text() == "penstock: error: cannot write to standard output: No space left on device\n"


def test_standard_error_whose_reader_has_left_keeps_the_exit_code():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "penstock", "tran"], stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 2


def test_a_pipe_that_breaks_inside_a_run_is_no_success(monkeypatch):
    def fail(config, *, run_name, processes):
        raise BrokenPipeError

    monkeypatch.setattr("penstock.run.train", fail)
    with pytest.raises(BrokenPipeError):
        main(["train", "--env", "X"])


def test_help_names_every_command_with_an_example(capsys):
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"\n  {name} " in said
        assert command.example in said
    assert main([]) == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_help(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert COMMANDS[command].example in said
    assert main([command, "-h"]) == 0


def test_lists(capsys):
    assert main(["algos"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()][:2] == ["ppo", "a2c"]
    assert main(["presets"]) == 0
    assert "CartPole-v1" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"


def in_process(program, **options):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, **options)


def test_help_imports_nothing_heavy():
    program = (
        "import sys; from penstock.cli import main; main(['--help'])\n"
        "heavy = {'numpy', 'torch', 'gymnasium', 'matplotlib', 'rich', 'safetensors', 'onnx'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = in_process(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_train_help_imports_no_torch():
    program = "import sys; from penstock.cli import main; main(['train', '--help']); sys.exit('torch' in sys.modules)"
    assert in_process(program).returncode == 0


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "train", "--lrr", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "did you mean --lr" in done.stderr


def test_a_reader_that_leaves_is_no_failure():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "train", "--help"], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_standard_output_and_an_old_locale():
    closed = subprocess.run(f"{sys.executable} -m penstock --help >&-", shell=True, capture_output=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, b"")
    program = (
        "from types import SimpleNamespace as N; import penstock.cli.output as c\n"
        "evaluation = N(mean_return=1.0, std_return=1.0, mean_length=1.0, episodes=1, metrics={}, remark='')\n"
        "c.conclude(N(run_folder='x', interrupted=False, evaluation=evaluation, not_restored=0, notes=()), 'Any-v1')"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    plain = in_process(f"import penstock.cli as c; c.main(['--version'])\n{program}", env=environment)
    assert plain.returncode == 0, plain.stderr
    assert "return 1.0 ? 1.0" in plain.stdout


def test_a_run_of_games_does_not_name_an_evaluation(capsys):
    finished = SimpleNamespace(run_folder="x", interrupted=False, evaluation=None, not_restored=0, notes=())
    for env, names in (("gamecore://my_game:GameAgent", False), ("CartPole-v1", True)):
        assert output.conclude(finished, env) == 0
        assert ("penstock eval" in capsys.readouterr().out) == names


def test_numbers_of_an_evaluation_print_as_json(monkeypatch, run, capsys):
    """numpy's numbers are no JSON, so what `evaluate` returns has to be Python's."""
    exact = SimpleNamespace(**{**vars(EVALUATION), "mean_return": float(np.float64(0.1))})
    monkeypatch.setattr("penstock.run.evaluate", lambda path, **options: exact)
    assert main(["eval", str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean_return"] == 0.1


def test_export_and_verify_find_the_run_and_say_what_to_type(monkeypatch, run, capsys):
    calls = []

    def export(path, *, processes, **options):
        calls.append((path, options))
        return options["out"]

    def verify(path, *, processes, limits, quantized_limits, **options):
        calls.append((path, tuple(vars(limits).values()), tuple(vars(quantized_limits).values()), options))
        return SimpleNamespace(passed=False, table=lambda: "a table", to_json=lambda: {"passed": False})

    monkeypatch.setattr("penstock.deployment.export", export)
    monkeypatch.setattr("penstock.deployment.verify", verify)
    logs = ["--log_dir", str(run.path.parent)]
    asked = ["--out", "a policy", "--checkpoint", "best", "--format", "onnx,torch", "--quantize", "int8"]
    assert main(["export", run.name, *asked, *logs]) == 0
    assert f"verify 'a policy' --against {run.path}" in capsys.readouterr().out
    options = {"out": "a policy", "checkpoint": "best", "format": ("onnx", "torch"), "quantize": "int8"}
    assert calls.pop() == (run.path, {**options, "noise": False, "observations": 256})
    assert main(["verify", "a policy", "--against", "latest", "--error", "0.5", *logs]) == 1
    assert capsys.readouterr().out == "a table\n"
    options = {"against": run.path, "checkpoint": None, "observations": None, "seed": None}
    assert calls.pop() == ("a policy", (1.0, 0.5), (0.99, 0.02), options)
    assert main(["verify", "a policy", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"passed": False}


def test_what_an_environment_prints_is_no_part_of_the_answer(monkeypatch, capsys, tmp_path):
    def evaluate(*_, **__):
        print("loading the simulator")
        return SimpleNamespace(**vars(EVALUATION))

    monkeypatch.setattr("penstock.run.evaluate", evaluate)
    monkeypatch.setattr("penstock.cli.commands._run_folder", lambda options: RunFolder(tmp_path))
    monkeypatch.setattr("penstock.cli.commands._say_what_delays", lambda config, runtime: None)
    monkeypatch.setattr(RunFolder, "read_config", lambda folder: None)
    assert main(["eval", "run", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["episodes"] == EVALUATION.episodes
    assert "loading the simulator" in shown.err


def test_commands_are_named_so_that_they_run_from_here(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.argv", [".venv/bin/penstock", "train"])
    assert output.program() == ".venv/bin/penstock"
    monkeypatch.setattr("sys.argv", ["-m", "train"])
    assert output.program() == "penstock"


def test_an_argument_that_is_no_text_is_one_line(tmp_path):
    argv = [sys.executable, "-m", "penstock", "train", "--env", "tests.environments:ClockEnv", "--log_dir", b"log\xff"]
    done = subprocess.run(argv, capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == b"penstock: error: --log_dir log? is not UTF-8 text; give another name, or set PYTHONUTF8=1\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "locale",
    [
        # Shorter: the last one is the hardest.
        pytest.param({}, marks=pytest.mark.nightly),
        pytest.param({"LC_ALL": "C"}, marks=pytest.mark.nightly),
        {"PYTHONIOENCODING": "ascii", "LC_ALL": "POSIX"},
    ],
)
def test_a_run_in_a_folder_with_spaces_and_signs_that_are_not_ascii(tmp_path, locale):
    folder = tmp_path / "a ü 目"
    folder.mkdir()
    small = ["--timesteps=16", "--num_envs=2", "--num_steps=8", "--mini_batch_size=16", "--eval_episodes=1"]
    argv = [sys.executable, "-m", "penstock", "train", "--env", "tests.environments:ClockEnv", *small]
    done = subprocess.run(
        [*argv, "--log_dir", "lögs"], capture_output=True, check=False, cwd=folder, env=os.environ | locale
    )
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "lögs").iterdir()
    assert b"evaluate:" in done.stdout
    argv = [sys.executable, "-m", "penstock", "eval", str(run), "--episodes", "1"]
    assert subprocess.run(argv, capture_output=True, check=False, env=os.environ | locale).returncode == 0


def test_a_search_in_which_no_trial_has_learned_fails(tmp_path: Path, monkeypatch, capsys) -> None:
    tune = pytest.importorskip("penstock.tune.tuning")
    trial = tune.Trial("a", {"lr": 0.1}, 0, float("-inf"), None, None, tmp_path)
    trials = [trial, replace(trial, error="node env.0 failed: ValueError: boom")]
    monkeypatch.setattr(tune, "tune", lambda config, searched, **settings: tune.Tuned(trials, interrupted=False))
    argv = ["tune", "--env", "CartPole-v1", "--search", "lr=uniform:0.1:0.2"]
    assert main(argv) == 1
    assert "best:" not in capsys.readouterr().out
    trials[0] = replace(trial, evaluation=20.0)
    assert main(argv) == 0


def test_tune_says_once_what_became_of_rllibs_settings(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "rllib.toml").write_text("num_sgd_iter = 3\n")
    tuned = SimpleNamespace(trials=[], interrupted=True)
    monkeypatch.setattr("penstock.tune.tuning.tune", lambda config, searched, **settings: tuned)
    file = ["--config", str(tmp_path / "rllib.toml")]
    main(["tune", "--env", "CartPole-v1", *file, "--search", "lr=uniform:0.1:0.2", "--search", "gamma=choice:0.9,0.8"])
    assert capsys.readouterr().out.count("settings of RLlib: num_sgd_iter 3 became epochs 3") == 1
