"""The commands of ``penstock``: each takes its arguments and calls the package that does the work.

`PARTS`, at the end, lists them. Imports everything on use: ``penstock --help`` loads no numpy, no torch, no gymnasium.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.cli.output import INTERRUPTED, conclude, output_to_error, program, say
from penstock.errors import ConfigError
from penstock.registry import RUNTIMES, load

__all__ = ["COMMANDS", "PARTS", "Command"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Unit of ``--every`` -> seconds."""
_FLAGS = "[--name value ...]"


class Command(NamedTuple):
    """One command of ``penstock``."""

    call: Callable[[Sequence[str]], int]
    """Arguments behind the command's name -> exit code."""
    text: str
    """What it does, for ``--help``."""
    example: str
    """A command line that works."""
    options: str | None = None
    """Name of its dataclass in ``config/commands/``. ``None``: it takes the settings of a run, or nothing."""
    takes: str = _FLAGS
    """What is typed behind its name, for the line of its usage."""


def _ready_processes() -> Any:  # noqa: ANN401 - of a class that is loaded on use
    """The processes of a command. The first of them imports what all need while this process imports the rest."""
    processes = load("penstock.processes.starts:Processes")()
    processes.get_ready()
    return processes


def _options(command: str, argv: Sequence[str]) -> Any:  # noqa: ANN401  (each command has its own)
    """The options of a command that are no settings of a run: an object of its dataclass."""
    options = load(f"penstock.config.commands:{COMMANDS[command].options}")
    return load("penstock.config.flags:options_from_arguments")(options, argv)


def _run_folder(options: Any) -> Any:  # noqa: ANN401
    """The folder of the run that RUN names."""
    return load("penstock.saved_runs.run_folder:RunFolder").find(options.run, options.log_dir)


def _say_what_delays(config: Any, runtime: str) -> None:  # noqa: ANN401
    """Say what keeps a command from beginning at once, if something does: a run's networks, or the runtime used."""
    for line in (load("penstock.policies.network_settings:export_note")(config), RUNTIMES[runtime].delay):
        if line:
            say(line)


def _no_arguments(argv: Sequence[str]) -> None:
    if argv:
        raise ConfigError(f"unexpected argument {argv[0]!r}")


def _new(argv: Sequence[str]) -> int:
    options = _options("new", argv)
    place = load("penstock.templates:write_project")(options.folder, options.template)
    return say(f"project:    {place}\nbegin:      cd {load('shlex:quote')(str(place))}; README.md says what to type")


def _train(argv: Sequence[str]) -> int:
    with _ready_processes() as processes:
        options, config, settings = load("penstock.config.flags:train_from_arguments")(argv)
        if options.resume_if_exists:
            found = load("penstock.saved_runs.leftovers:run_to_resume")(config.run.log_dir, options.run_name)
            if found is not None:
                say(f"there is a run {options.run_name}: it goes on")
                return _resume_run(found, settings, None, processes)
        notes = (
            load("penstock.config.flags:file_note")(argv),
            load("penstock.envs.names:note")(config.run.env),
            load("penstock.envs.atari:preset_hint")(config),
        )
        for line in filter(None, notes):
            say(line)
        _say_what_delays(config, config.run.runtime)
        result = load("penstock.run:train")(config, run_name=options.run_name, processes=processes)
        return conclude(result, config.run.env)


def _resume(argv: Sequence[str]) -> int:
    with _ready_processes() as processes:
        options, settings = load("penstock.config.flags:resume_from_arguments")(argv)
        return _resume_run(_run_folder(options), settings, options.checkpoint, processes)


def _resume_run(folder: Any, settings: Any, checkpoint: str | None, processes: Any) -> int:  # noqa: ANN401
    """Resume a run with changed settings, and print the result; return the exit code."""
    resume = load("penstock.run:resume")
    config = load("penstock.config.sources:with_changes")(folder.read_config(), settings)
    _say_what_delays(config, config.run.runtime)
    result = resume(folder.path, checkpoint=checkpoint, settings=settings, processes=processes)
    return conclude(result, config.run.env)


def _tune(argv: Sequence[str]) -> int:
    with _ready_processes() as processes:
        options, config, given = load("penstock.config.flags:tune_from_arguments")(argv)
        searched = load("penstock.tune.search:read_search")(options.search or (), config)
        names = ("samples", "scheduler", "searcher", "at_once", "name", "address")
        settings = {name: getattr(options, name) for name in names}
        try:
            tune = load("penstock.tune.tuning:tune")
        except ModuleNotFoundError as error:
            raise ConfigError(f"penstock tune needs {error.name}; type: pip install 'penstock[ray]'") from None
        if note := load("penstock.config.flags:file_note")(argv):
            say(note)
        tuned = tune(config, searched, told=say, given=given, processes=processes, **settings)
    code = say(load("penstock.tune.table:as_table")(tuned.trials, options.samples))
    if tuned.interrupted:
        return INTERRUPTED
    return code or int(not load("penstock.tune.table:some_has_learned")(tuned.trials))


def _eval(argv: Sequence[str]) -> int:
    with output_to_error(), _ready_processes() as processes:
        options = _options("eval", argv)
        taken = ("episodes", "checkpoint", "seed", "num_workers", "runtime", "distributed", "address", "keep")
        asked = {name: getattr(options, name) for name in taken}
        evaluate, folder = load("penstock.run:evaluate"), _run_folder(options)
        playing = load("penstock.config.runtimes:runtime_of")
        runtime = playing(options.runtime, distributed=options.distributed, default="local")
        _say_what_delays(folder.read_config(), runtime)
        evaluation = evaluate(folder.path, **asked, quiet=False, processes=processes)
    if options.json:
        numbers = ("mean_return", "std_return", "mean_length", "episodes", "metrics")
        names = (*numbers, "env", "seed", "checkpoint", "remark")
        return say(json.dumps({name: getattr(evaluation, name) for name in names}))
    said = load("penstock.metrics.final:evaluated")(evaluation)
    return say(f"{evaluation.env}, {evaluation.checkpoint}: {said}")


def _watch(argv: Sequence[str]) -> int:
    with output_to_error(), _ready_processes() as processes:
        options = _options("watch", argv)
        names = ("out", "episodes", "seconds", "window", "checkpoint", "seed")
        asked = {name: getattr(options, name) for name in names}
        watch, folder = load("penstock.watching:watch"), _run_folder(options)
        _say_what_delays(folder.read_config(), "local")
        found = watch(folder.path, **asked, processes=processes)
    played = [
        f"episode {number}: return {value:,.1f}, {length:,} steps"
        for number, (value, length) in enumerate(zip(found.returns, found.lengths, strict=True), 1)
    ]
    if found.is_cut:
        played.append(f"episode {len(played) + 1} is cut after --seconds {options.seconds:g}")
    picture = [] if found.picture is None else [f"picture: {found.picture}"]
    return say("\n".join([f"{found.env}, {found.checkpoint}", *played, *picture]))


def _export(argv: Sequence[str]) -> int:
    with output_to_error(), _ready_processes() as processes:
        options = _options("export", argv)
        names = ("out", "checkpoint", "format", "quantize", "noise", "observations")
        asked = {name: getattr(options, name) for name in names}
        run = _run_folder(options).path
        out = load("penstock.deployment:export")(run, **asked, processes=processes)
    quote = load("shlex:quote")
    run, bundle = quote(str(run)), quote(str(out))
    return say(f"policy:     {out}\nverify:     {program()} verify {bundle} --against {run}")


def _verify(argv: Sequence[str]) -> int:
    with output_to_error(), _ready_processes() as processes:
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
    code = say(json.dumps(found.to_json()) if options.json else found.table())
    return code or int(not found.passed)


def _plot(argv: Sequence[str]) -> int:
    options = _options("plot", argv)
    what = options.log_dir if options.run is None else _run_folder(options).path
    path = load("penstock.saved_runs.plots:plot")(what, save=options.save_fig, smooth=options.smooth)
    return say(f"curves: {path}") if path is not None else 0


def _compare(argv: Sequence[str]) -> int:
    options = _options("compare", argv)
    module = "penstock.saved_runs.comparison"
    found = load(f"{module}:compare")(load(f"{module}:read_sides")(options.sides, options.log_dir))
    if options.plot is not None:
        load(f"{module}:save_picture")(found, options.plot)
    if options.json:
        return say(load(f"{module}:as_json")(found))
    picture = "" if options.plot is None else f"\npicture: {options.plot}"
    return say(load(f"{module}:as_table")(found) + picture)


def _metrics(argv: Sequence[str]) -> int:
    options = _options("metrics", argv)
    module = "penstock.saved_runs.run_metrics"
    question = load(f"{module}:Question")(options.metric, options.level, options.kind, options.q, options.last)
    metrics = load(f"{module}:read_metrics")(_run_folder(options).path)
    return say(load(f"{module}:as_json" if options.json else f"{module}:as_table")(metrics, question))


def _models(argv: Sequence[str]) -> int:
    options = _options("models", argv)
    module = "penstock.saved_runs.versions"
    folder = _run_folder(options)
    wanted = [name for name in ("pin", "unpin", "clone", "prune") if getattr(options, name) is not None]
    if len(wanted) > 1:
        raise ConfigError(f"--{wanted[0]} and --{wanted[1]}: one at a time")
    if options.keep_every and wanted != ["prune"]:
        raise ConfigError("--keep_every is for --prune; for a run that trains, give it to penstock train")
    match wanted:
        case ["pin" | "unpin" as verb]:
            name = load(f"{module}:{verb}")(folder.path, getattr(options, verb))
            return say(f"{verb}ned {name} of {folder.name}")
        case ["clone"]:
            made = load(f"{module}:clone")(folder, options.clone).path
            return say(f"run folder: {made}\ncontinue:   {program()} resume {load('shlex:quote')(str(made))}")
        case ["prune"]:
            gone = load(f"{module}:prune")(folder, options.prune, options.keep_every)
            removed = "\n".join(f"removed {name} of {folder.name}" for name in gone)
            return say(removed or f"nothing to remove of {folder.name}")
    if options.json:
        origin, clones = load(f"{module}:lineage")(folder.path)
        listed = [one._asdict() for one in load(f"{module}:versions")(folder.path)]
        return say(json.dumps({"versions": listed, "origin": origin, "clones": clones}))
    return say(load(f"{module}:table")(folder.path))


def _retrain(argv: Sequence[str]) -> int:
    options = _options("retrain", argv)
    names = ("experience", "drift", "held_out", "epochs")
    asked = {name: getattr(options, name) for name in names}
    run, newest = _run_folder(options).path, 0
    while True:
        with output_to_error(), _ready_processes() as processes:
            found = load("penstock.retraining:retrain")(run, **asked, after=newest, processes=processes)
        code = say(found.text)
        if options.every is None:
            return code
        newest = found.newest
        time.sleep(float(options.every[:-1]) * _SECONDS[options.every[-1]])


def _trace(argv: Sequence[str]) -> int:
    options = _options("trace", argv)
    return say(load("penstock.saved_runs.trace:write_trace")(_run_folder(options).path, options.out))


def _serve(argv: Sequence[str]) -> int:
    options = _options("serve", argv)
    load("penstock.serving.server.command:serve")(options, "penstock.run:load_policy", say)
    return 0


def _bench_serve(argv: Sequence[str]) -> int:
    options = _options("bench-serve", argv)
    line, is_whole = load("penstock.serving.server.command:bench")(options)
    return say(line) or int(not is_whole)


def _draw(argv: Sequence[str]) -> int:
    config = load("penstock.config.flags:config_from_arguments")(argv)
    return say(load("penstock.run:draw")(config))


def _algos(argv: Sequence[str]) -> int:
    _no_arguments(argv)
    return say("\n".join(load("penstock.config.listing:algorithm_lines")()))


def _presets(argv: Sequence[str]) -> int:
    _no_arguments(argv)
    presets = load("penstock.config.sources:preset_texts")()
    return say("\n".join(f"{name:<24} {text}" for name, text in presets.items()))


PARTS = {
    "Train": {
        "train": Command(_train, "train a policy", "penstock train --env Pendulum-v1"),
        "resume": Command(
            _resume,
            "continue a run from a checkpoint",
            "penstock resume latest",
            takes=f"RUN {_FLAGS}",
        ),
        "tune": Command(
            _tune,
            "train many runs with different settings, and compare them; takes the settings of train as well",
            "penstock tune --env Pendulum-v1 --samples 20 --search lr=loguniform:1e-5:1e-2",
            "TuneOptions",
        ),
        "draw": Command(
            _draw,
            "show the nodes, edges and processes of a run as text; starts nothing",
            "penstock draw --env Pendulum-v1",
        ),
        "new": Command(
            _new,
            "write a small project that runs at once: an environment or a game of your own, its tests, its settings",
            "penstock new my_project --template rl",
            "NewOptions",
            takes=f"FOLDER {_FLAGS}",
        ),
    },
    "Look at a run": {
        "eval": Command(
            _eval,
            "play episodes with a trained policy, greedily: without exploration",
            "penstock eval latest --episodes 100",
            "EvalOptions",
            takes=f"RUN {_FLAGS}",
        ),
        "watch": Command(
            _watch,
            "film greedy episodes, or show them in a window",
            "penstock watch latest --episodes 3",
            "WatchOptions",
            takes=f"RUN {_FLAGS}",
        ),
        "plot": Command(
            _plot,
            "plot the curves of one run, or of several runs",
            "penstock plot latest",
            "PlotOptions",
            takes=f"[RUN] {_FLAGS}",
        ),
        "compare": Command(
            _compare,
            "set runs on one task side by side: return, speed and idle time, with 95 % intervals",
            "penstock compare RUN_A RUN_B --plot compared.png",
            "CompareOptions",
            takes=f"SIDE SIDE ... {_FLAGS}",
        ),
        "metrics": Command(
            _metrics,
            "print the metrics of a run: mean, sum, smallest, largest, quantiles",
            "penstock metrics latest loss/policy --kind mean --last 100",
            "MetricsOptions",
            takes=f"RUN [METRIC] {_FLAGS}",
        ),
        "trace": Command(
            _trace,
            "write when each node worked, and when it was idle, to a file for Perfetto; the run needs --trace True",
            "penstock trace latest",
            "TraceOptions",
            takes=f"RUN {_FLAGS}",
        ),
    },
    "Bring a policy into production": {
        "models": Command(
            _models,
            "list the versions (checkpoints) of a run's policy; pin, prune and clone them",
            "penstock models latest --pin best",
            "ModelsOptions",
            takes=f"RUN {_FLAGS}",
        ),
        "export": Command(
            _export,
            "export a policy as a bundle: one folder, which ONNX Runtime runs without penstock",
            "penstock export latest --out policy",
            "ExportOptions",
            takes=f"RUN {_FLAGS}",
        ),
        "verify": Command(
            _verify,
            "compare the actions of a bundle with those of the trained network",
            "penstock verify policy --against latest",
            "VerifyOptions",
            takes=f"BUNDLE {_FLAGS}",
        ),
        "serve": Command(
            _serve,
            "serve trained policies over HTTP, TCP and gRPC",
            "penstock serve latest --port 8000",
            "ServeOptions",
            takes=f"RUN|BUNDLE | NAME=RUN|BUNDLE ... {_FLAGS}",
        ),
        "bench-serve": Command(
            _bench_serve,
            "measure a server: actions a second, and how long each takes",
            "penstock bench-serve http://localhost:8000 --clients 64",
            "BenchServeOptions",
            takes=f"URL {_FLAGS}",
        ),
        "retrain": Command(
            _retrain,
            "go on learning from episodes that a server kept; publish the result if it is no worse",
            "penstock retrain latest --experience kept/policy --every 1h --drift 0.1",
            "RetrainOptions",
            takes=f"RUN {_FLAGS}",
        ),
    },
    "Lists": {
        "algos": Command(
            _algos, "list the algorithms with their actions, topology and paper", "penstock algos", takes=""
        ),
        "presets": Command(
            _presets, "list the presets: settings that work well for one task", "penstock presets", takes=""
        ),
    },
}
"""Part of ``penstock --help`` -> its commands by their names."""

COMMANDS = {name: command for part in PARTS.values() for name, command in part.items()}
