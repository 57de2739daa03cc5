"""The command line: argv -> config -> call. ``run.py`` and other rooms do the work of each command.

Imports everything on use: ``penstock --help`` loads no numpy, no torch, no gymnasium.
"""

import atexit
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from penstock import __version__
from penstock.errors import ConfigError, NodeError, PenstockError, UsageError, nearest
from penstock.metrics.output import abandon
from penstock.registry import load

__all__ = ["main"]

INTERRUPTED = 130
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_HELP = frozenset({"-h", "--help"})


class Command(NamedTuple):
    """One command of ``penstock``."""

    call: Callable[[Sequence[str]], int]
    text: str
    example: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line. Returns the exit code: 0, 1 for a failure, 2 for a mistake of the user, 130 for Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Python ends by the signal if one comes while it shuts down, whatever the exit code is.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale cannot show must not end a run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        return _dispatch(arguments)
    except UsageError as error:
        return _complain(_failure(error), 2)
    except PenstockError as error:
        return _complain(_failure(error), 1)
    except KeyboardInterrupt as interrupt:
        if str(interrupt):
            _say(str(interrupt))
        return INTERRUPTED


def _dispatch(arguments: Sequence[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in _HELP:
        return _say(_help())
    if name in {"-V", "--version"}:
        return _say(f"penstock {__version__}")
    if name not in COMMANDS:
        raise ConfigError(f"unknown command {name!r}{nearest(name, COMMANDS) or '; penstock --help lists them'}")
    rest = arguments[1:]
    if _HELP & set(rest):
        return _say(_command_help(name, rest))
    return COMMANDS[name].call(rest)


def _train(argv: Sequence[str]) -> int:
    with _starting() as processes:
        config = load("penstock.config.flags:config_from_arguments")(argv)
        notes = (
            load("penstock.config.flags:file_note")(argv),
            load("penstock.envs.names:note")(config.run.env),
            load("penstock.envs.atari:preset_hint")(config),
        )
        for line in filter(None, notes):
            _say(line)
        _announce(config)
        return _conclude(load("penstock.run:train")(config, processes=processes))


def _resume(argv: Sequence[str]) -> int:
    with _starting() as processes:
        options, settings = load("penstock.config.flags:resume_from_arguments")(argv)
        resume, asked = load("penstock.run:resume"), {"checkpoint": options.checkpoint, "settings": settings}
        folder = _run_folder(options)
        _announce(folder.read_config())
        return _conclude(resume(folder.path, **asked, processes=processes))


def _tune(argv: Sequence[str]) -> int:
    options, config = load("penstock.config.flags:tune_from_arguments")(argv)
    searched = load("penstock.tune.search:read_search")(options.search or (), config)
    names = ("samples", "scheduler", "searcher", "at_once", "name", "address")
    settings = {name: getattr(options, name) for name in names}
    try:
        tune = load("penstock.tune.tuning:tune")
    except ModuleNotFoundError as error:
        raise ConfigError(f"penstock tune needs {error.name}; type pip install 'penstock[ray]'") from None
    trials = tune(config, searched, told=_say, **settings)
    code = _say(load("penstock.tune.table:as_table")(trials))
    return code or int(all(trial.error is not None for trial in trials))


def _eval(argv: Sequence[str]) -> int:
    with _output_to_error(), _starting() as processes:
        options = _options("eval", argv)
        asked = {"episodes": options.episodes, "checkpoint": options.checkpoint, "seed": options.seed}
        evaluate, folder = load("penstock.run:evaluate"), _run_folder(options)
        _announce(folder.read_config())
        evaluation = evaluate(folder.path, **asked, quiet=False, processes=processes)
    if options.json:
        names = ("mean_return", "std_return", "mean_length", "episodes", "env", "seed", "checkpoint", "remark")
        return _say(json.dumps({name: getattr(evaluation, name) for name in names}))
    return _say(f"{evaluation.env}, {evaluation.checkpoint}: {_evaluated(evaluation)}")


def _export(argv: Sequence[str]) -> int:
    with _output_to_error(), _starting() as processes:
        options = _options("export", argv)
        names = ("out", "checkpoint", "format", "quantize", "noise", "observations")
        asked = {name: getattr(options, name) for name in names}
        run = _run_folder(options).path
        out = load("penstock.deployment:export")(run, **asked, processes=processes)
    quote = load("shlex:quote")
    run, bundle = quote(str(run)), quote(str(out))
    return _say(f"policy:     {out}\nverify:     {_program()} verify {bundle} --against {run}")


def _verify(argv: Sequence[str]) -> int:
    with _output_to_error(), _starting() as processes:
        options = _options("verify", argv)
        against = options.against
        if against is not None:
            against = load("penstock.saved_runs.run_folder:RunFolder").find(against, options.log_dir).path
        limits = load("penstock.serving.verification:Limits")
        found = load("penstock.deployment:verify")(
            options.bundle,
            against=against,
            checkpoint=options.checkpoint,
            limits=limits(options.agreement, options.error),
            quantized_limits=limits(options.quantized_agreement, options.quantized_error),
            observations=options.observations,
            seed=options.seed,
            processes=processes,
        )
    code = _say(json.dumps(found.to_json()) if options.json else found.table())
    return code or int(not found.passed)


def _starting() -> Any:  # noqa: ANN401 - of a class that is loaded on use
    """The processes of a command. The first of them imports what all need while this process imports the rest."""
    processes = load("penstock.processes.starts:Processes")()
    processes.get_ready()
    return processes


@contextlib.contextmanager
def _output_to_error() -> Iterator[None]:
    """Send standard output to standard error meanwhile, also that of the processes started here.

    What environments print and the progress of an evaluation are not a part of the answer, which may be JSON.
    """
    with contextlib.ExitStack() as stack:
        # Standard output or standard error may be closed.
        with contextlib.suppress(OSError):
            kept = os.dup(1)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 1)
            os.dup2(2, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def _plot(argv: Sequence[str]) -> int:
    options = _options("plot", argv)
    path = load("penstock.saved_runs.plots:plot")(options.log_dir, save=options.save_fig, smooth=options.smooth)
    return _say(f"curves: {path}") if path is not None else 0


def _compare(argv: Sequence[str]) -> int:
    options = _options("compare", argv)
    room = "penstock.saved_runs.comparison"
    found = load(f"{room}:compare")(load(f"{room}:read_sides")(options.sides, options.log_dir))
    if options.plot is not None:
        load(f"{room}:save_picture")(found, options.plot)
    if options.json:
        return _say(load(f"{room}:as_json")(found))
    picture = "" if options.plot is None else f"\npicture: {options.plot}"
    return _say(load(f"{room}:as_table")(found) + picture)


def _models(argv: Sequence[str]) -> int:
    options = _options("models", argv)
    room = "penstock.saved_runs.versions"
    folder = _run_folder(options)
    wanted = [name for name in ("pin", "unpin", "clone", "prune") if getattr(options, name) is not None]
    if len(wanted) > 1:
        raise ConfigError(f"--{wanted[0]} and --{wanted[1]}: one at a time")
    if options.keep_every and wanted != ["prune"]:
        raise ConfigError("--keep_every is for --prune; for a run that trains, give it to penstock train")
    match wanted:
        case ["pin" | "unpin" as verb]:
            return _say(f"{verb}ned {load(f'{room}:{verb}')(folder.path, getattr(options, verb))}")
        case ["clone"]:
            made = load(f"{room}:clone")(folder, options.clone).path
            return _say(f"run folder: {made}\ncontinue:   {_program()} resume {load('shlex:quote')(str(made))}")
        case ["prune"]:
            gone = load(f"{room}:prune")(folder, options.prune, options.keep_every)
            return _say("\n".join(f"removed {name}" for name in gone) or "nothing to remove")
    if options.json:
        origin, clones = load(f"{room}:lineage")(folder.path)
        listed = [one._asdict() for one in load(f"{room}:versions")(folder.path)]
        return _say(json.dumps({"versions": listed, "origin": origin, "clones": clones}))
    return _say(load(f"{room}:table")(folder.path))


def _retrain(argv: Sequence[str]) -> int:
    options = _options("retrain", argv)
    names = ("experience", "drift", "held_out", "epochs")
    asked = {name: getattr(options, name) for name in names}
    run, newest = _run_folder(options).path, 0
    while True:
        with _output_to_error(), _starting() as processes:
            found = load("penstock.retraining:retrain")(run, **asked, after=newest, processes=processes)
        _say(found.text)
        if options.every is None:
            return 0
        newest = found.newest
        time.sleep(float(options.every[:-1]) * _SECONDS[options.every[-1]])


def _trace(argv: Sequence[str]) -> int:
    options = _options("trace", argv)
    return _say(load("penstock.saved_runs.trace:write_trace")(_run_folder(options).path, options.out))


def _serve(argv: Sequence[str]) -> int:
    options = _options("serve", argv)
    load("penstock.serving.server.command:serve")(options, "penstock.run:load_policy", _say)
    return 0


def _bench_serve(argv: Sequence[str]) -> int:
    options = _options("bench-serve", argv)
    return _say(load("penstock.serving.server.command:bench")(options))


def _draw(argv: Sequence[str]) -> int:
    config = load("penstock.config.flags:config_from_arguments")(argv)
    return _say(load("penstock.run:draw")(config))


def _algos(argv: Sequence[str]) -> int:
    _no_arguments(argv)
    return _say("\n".join(load("penstock.config.listing:algorithm_lines")()))


def _presets(argv: Sequence[str]) -> int:
    _no_arguments(argv)
    presets = load("penstock.config.sources:preset_texts")()
    return _say("\n".join(f"{name:<24} {text}" for name, text in presets.items()))


COMMANDS = {
    "train": Command(_train, "train a policy", "penstock train --env Pendulum-v1"),
    "resume": Command(_resume, "continue a run from a checkpoint", "penstock resume latest"),
    "tune": Command(
        _tune,
        "train many runs with different settings, and compare them; takes every setting of train as well",
        "penstock tune --env Pendulum-v1 --samples 20 --search lr=loguniform:1e-5:1e-2",
    ),
    "eval": Command(_eval, "play greedy episodes with a trained policy", "penstock eval latest --episodes 100"),
    "export": Command(
        _export,
        "export a policy as a folder that runs anywhere",
        "penstock export latest --out policy",
    ),
    "verify": Command(
        _verify, "compare an exported policy with the trained network", "penstock verify policy --against latest"
    ),
    "plot": Command(_plot, "plot the curves of one run, or of several runs", "penstock plot --logdir ./logs"),
    "compare": Command(
        _compare,
        "set runs on one task side by side: return, speed and idle time, with intervals",
        "penstock compare RUN_A RUN_B --plot compared.png",
    ),
    "models": Command(
        _models, "list the versions of a run's policy; pin, prune and clone them", "penstock models latest --pin best"
    ),
    "trace": Command(_trace, "show when each node of a run worked, and when it was idle", "penstock trace latest"),
    "draw": Command(
        _draw, "show the nodes, edges and processes of a run as text; starts nothing", "penstock draw --env Pendulum-v1"
    ),
    "serve": Command(_serve, "answer requests over sockets with trained policies", "penstock serve latest --port 8000"),
    "retrain": Command(
        _retrain,
        "learn from episodes that a server kept; publish what is no worse",
        "penstock retrain latest --experience kept/policy --every 1h --drift 0.1",
    ),
    "bench-serve": Command(
        _bench_serve,
        "measure how many ticks a second a server answers, and how fast",
        "penstock bench-serve http://localhost:8000 --clients 64",
    ),
    "algos": Command(_algos, "list the algorithms with their actions, topology and paper", "penstock algos"),
    "presets": Command(_presets, "list the presets", "penstock presets"),
}
_OPTIONS = {
    "bench-serve": "BenchServeOptions",
    "compare": "CompareOptions",
    "eval": "EvalOptions",
    "export": "ExportOptions",
    "verify": "VerifyOptions",
    "plot": "PlotOptions",
    "retrain": "RetrainOptions",
    "serve": "ServeOptions",
    "models": "ModelsOptions",
    "trace": "TraceOptions",
    "tune": "TuneOptions",
}


def _options(command: str, argv: Sequence[str]) -> Any:  # noqa: ANN401  (each command has its own)
    options = load(f"penstock.config.commands:{_OPTIONS[command]}")
    return load("penstock.config.flags:options_from_arguments")(options, argv)


def _run_folder(options: Any) -> Any:  # noqa: ANN401
    return load("penstock.saved_runs.run_folder:RunFolder").find(options.run, options.log_dir)


def _announce(config: Any) -> None:  # noqa: ANN401
    """Say what keeps a run from beginning at once, if something does."""
    line = load("penstock.policies.architecture:export_note")(config)
    if line:
        _say(line)


def _no_arguments(argv: Sequence[str]) -> None:
    if argv:
        raise ConfigError(f"unexpected argument {argv[0]!r}")


def _conclude(result: Any) -> int:  # noqa: ANN401
    """Print the notes and the result of a finished or interrupted training; return the exit code."""
    run = load("shlex:quote")(str(result.run_folder))
    for note in result.notes:
        _say(note)
    if result.not_restored:
        _say(f"{result.not_restored} lanes could not be restored and began a new episode; all else continued exactly")
    if result.interrupted:
        _say(f"stopped after {result.steps:,} steps; continue with: {_program()} resume {run}")
        return INTERRUPTED
    lines = (
        *(() if result.evaluation is None else (_evaluated(result.evaluation),)),
        f"run folder: {result.run_folder}",
        f"evaluate:   {_program()} eval {run}",
        f"curves:     {_program()} plot --logdir {run}",
    )
    return _say("\n".join(lines))


def _program() -> str:
    """The command that calls this program: its name if PATH finds it, else the path that it was called by."""
    found = shutil.which("penstock") is not None or not sys.argv[0].endswith("/penstock")
    return "penstock" if found else str(load("shlex:quote")(sys.argv[0]))


def _evaluated(evaluation: Any) -> str:  # noqa: ANN401
    spread = f"{evaluation.mean_return:,.1f} ± {evaluation.std_return:,.1f}"
    remark = f" ({evaluation.remark})" if evaluation.remark else ""
    steps = f"{evaluation.mean_length:,.1f} steps each"
    return f"return {spread} over {evaluation.episodes} greedy episodes, {steps}{remark}"


def _help() -> str:
    lines = [f"  {name:<13}{command.text}\n               {command.example}" for name, command in COMMANDS.items()]
    return "\n".join(
        (
            "penstock trains reinforcement-learning policies in parallel.",
            "",
            "usage: penstock COMMAND [--name value ...]",
            "",
            *lines,
            "",
            "penstock COMMAND --help lists the flags of a command. penstock --version prints the version.",
        )
    )


def _command_help(name: str, argv: Sequence[str]) -> str:
    command = COMMANDS[name]
    takes = {
        "compare": " SIDE SIDE ...",
        "verify": " BUNDLE",
        "serve": " RUN|BUNDLE | NAME=RUN|BUNDLE ...",
        "bench-serve": " URL",
        **dict.fromkeys(("resume", "eval", "export", "models", "retrain", "trace"), " RUN"),
    }.get(name, "")
    head = f"usage: penstock {name}{takes} [--name value ...]\n\n{command.text}, for example: {command.example}\n\n"
    width = shutil.get_terminal_size().columns
    body = ""
    if name in {"train", "draw"}:
        body = load("penstock.config.help:train_help")(argv, width)
    elif name == "resume":
        body = load("penstock.config.help:resume_help")(width)
    elif name in _OPTIONS:
        options = load(f"penstock.config.commands:{_OPTIONS[name]}")
        body = load("penstock.config.help:options_help")(options, width)
    return (head + body).rstrip()


def _failure(error: PenstockError) -> str:
    """An error in one line, or with the node's traceback if one line does not suffice; then the notes on the run."""
    said = f"penstock: error: {error}"
    if isinstance(error, NodeError) and error.line is not None:
        said = f"penstock: error: node {error.node}: {error.line.removeprefix(f'{error.node}: ')}"
    elif isinstance(error, NodeError):
        said = f"{error.detail.rstrip()}\npenstock: node {error.node} failed; its traceback is above"
    return "\n".join((said, *(f"penstock: {note}" for note in getattr(error, "__notes__", ()))))


def _say(text: str) -> int:
    """Write to standard output and return the exit code."""
    if sys.stdout is not None:
        try:
            sys.stdout.write(text.rstrip("\n") + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of the pipe has left (`| head`). That is no failure.
            abandon(sys.stdout)
        except (OSError, ValueError) as error:
            abandon(sys.stdout)
            why = getattr(error, "strerror", None) or error
            return _complain(f"penstock: error: cannot write to standard output: {why}", 1)
    return 0


def _complain(text: str, code: int) -> int:
    """Write to standard error, if it is open, and return ``code``."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            abandon(sys.stderr)
    return code
