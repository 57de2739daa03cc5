"""A run's card, ``RUN/README.md``: what the run is, how good it became, and what to type next."""

import shlex
from collections.abc import Sequence

from penstock import __version__
from penstock.config.agreement import learners_text
from penstock.config.nodes_text import policy_nodes_text, processes_text
from penstock.config.schema import RunConfig
from penstock.config.sources import shown, to_toml
from penstock.config.whole import Config
from penstock.errors import RunFolderError
from penstock.metrics.final import Evaluated
from penstock.metrics.run_log import RUN_LOG
from penstock.saved_runs.best import best_checkpoint
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.code import code_text
from penstock.saved_runs.durable import write_file
from penstock.saved_runs.launches import last_code
from penstock.saved_runs.parts import Part, parts_of, parts_text
from penstock.saved_runs.run_folder import RunFolder

__all__ = ["write_card"]


def write_card(
    folder: RunFolder,
    config: Config,
    steps: int,
    updates: int,
    evaluation: Evaluated | None,
    *,
    failure: str | None = None,
    unevaluated: str | None = None,
) -> None:
    """Write the card, replacing an earlier one.

    Args:
        folder: the run.
        config: resolved.
        steps: environment steps learned from.
        updates: updates made.
        evaluation: of the final policy; ``None`` if there is none.
        failure: one line on why the run failed, if it did.
        unevaluated: one line on why its evaluation failed, if that did.

    Raises:
        RunFolderError: the card cannot be written.
    """
    text = "\n\n".join(
        (
            f"# {folder.name}",
            _summary(folder, config, steps, updates, _result(config.run, steps, evaluation, failure, unevaluated)),
            _commands(folder, config.run),
            _contents(folder),
            f"## Config\n\n```toml\n{to_toml(config)}```\n",
        )
    )
    try:
        write_file(folder.card_path, text.encode())
    except OSError as error:
        raise RunFolderError(f"cannot write {folder.card_path}: {error.strerror or error}") from error


def _summary(folder: RunFolder, config: Config, steps: int, updates: int, result: list[tuple[str, str]]) -> str:
    run = config.run
    parts = parts_of(folder, run)
    policy_nodes = parts_text(parts, policy_nodes_text, "in place")
    learners = parts_text(parts, learners_text, "1 learner")
    rows = [
        ("Environment", f"`{run.env}`"),
        *_shape(run),
        ("Algorithm", f"`{run.algo}`, seed {run.seed}"),
        ("Trained", f"{steps:,} of {run.timesteps:,} steps, {updates:,} updates"),
        *_resumed(parts, steps),
        ("Lanes and workers", f"{run.num_envs} and {run.num_workers}, {run.sync_mode.replace('_', '-')}"),
        *_processes(parts),
        *([("Policy", policy_nodes)] if policy_nodes else []),
        *([("Learners", learners)] if learners else []),
        ("Update", f"`{run.backend}` on `{run.device}`"),
        *_code(folder),
        *result,
    ]
    lines = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join((f"A policy trained by penstock {__version__}.", "", "| | |", "|---|---|", *lines))


def _result(
    run: RunConfig, steps: int, evaluation: Evaluated | None, failure: str | None, unevaluated: str | None
) -> list[tuple[str, str]]:
    """The rows on how good the policy became, or on why that is not known."""
    if failure is not None:
        return [("Result", f"failed, so not evaluated: {_in_a_cell(failure)}")]
    if evaluation is None:
        if unevaluated is not None:
            return [("Result", f"not evaluated: {_in_a_cell(unevaluated)}")]
        return [("Result", f"{_why_not_evaluated(run, steps)}; the commands below still work")]
    result = f"return **{evaluation.mean_return:,.1f}** ± {evaluation.std_return:,.1f}"
    remark = f" ({evaluation.remark})" if evaluation.remark else ""
    return [
        ("Result", f"{result} over {evaluation.episodes} greedy episodes{remark}"),
        ("Episode length", f"{evaluation.mean_length:,.1f} steps"),
    ]


def _in_a_cell(text: str) -> str:
    """A line of text as a cell of a table has it."""
    return text.replace("|", "&#124;")


def _resumed(parts: Sequence[Part], steps: int) -> list[tuple[str, str]]:
    """A row on the resumes that the run has learned something after, if there are any."""
    begins = [part.begin for part in parts if 0 < part.begin < steps]
    if not begins:
        return []
    when = "once," if len(begins) == 1 else f"{len(begins)} times, the last time"
    return [("Resumed", f"{when} at {begins[-1]:,} steps; `{RUN_LOG}` says which settings changed")]


def _processes(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """A row on the environment processes, if a resume has changed their number."""
    if len({part.run.num_workers for part in parts}) == 1:
        return []
    return [("Environment processes", parts_text(parts, lambda run: processes_text(run.num_workers), ""))]


def _why_not_evaluated(run: RunConfig, steps: int) -> str:
    if _plays_games(run):
        return "not evaluated: games cannot be asked for episodes"
    if not run.eval_episodes:
        return "not evaluated (`--eval_episodes 0`)"
    return "not evaluated yet" if steps >= run.timesteps else "stopped before its end, so not evaluated"


def _shape(run: RunConfig) -> list[tuple[str, str]]:
    """Rows on the environment's arguments, wrappers and own reward, if there are any."""
    given = {"Arguments": run.env_args, "Wrappers, the first innermost": run.wrap, "Opponents": run.opponents}
    rows = [(name, f"`{_in_a_cell(shown(value))}`") for name, value in given.items() if value]
    learned = f"`{run.reward}`; returns below are the environment's own"
    return [*rows, ("Rewards learned from", learned)] if run.reward else rows


def _code(folder: RunFolder) -> list[tuple[str, str]]:
    """A row on the user's own code that was launched last, if there is any."""
    code = last_code(folder)
    if code is None:
        return []
    kept = f"kept in `{code['folder']}`" if code["folder"] else "not kept"
    return [("Own code", "; ".join(text for text in (code_text(code), kept) if text))]


def _plays_games(run: RunConfig) -> bool:
    """Whether games connect to the run. No other run has a port."""
    return run.port is not None or run.tcp_port is not None


def _commands(folder: RunFolder, run: RunConfig) -> str:
    path = shlex.quote(str(folder.path))
    curves = []
    if folder.metrics_path.exists() and folder.metrics_path.stat().st_size:
        curves = [
            (f"penstock plot {path}", "its curves"),
            (f"tensorboard --logdir {path}", "if TensorBoard is installed"),
        ]
    if not list_checkpoints(folder.path):
        config = shlex.quote(str(folder.config_path))
        lines = [(f"penstock train --config {config}", "begin anew: it has no checkpoint"), *curves]
    else:
        judge = (f"penstock eval {path} --episodes 100", "how good it is")
        if _plays_games(run):
            judge = (f"penstock serve {path}", "let games play with it")
        lines = [judge, (f"penstock resume {path}", "continue from its last checkpoint"), *curves]
    width = max(len(command) for command, _ in lines)
    text = "\n".join(f"{command:{width}}  # {what}" for command, what in lines)
    return f"## What to do with it\n\n```sh\n{text}\n```"


def _contents(folder: RunFolder) -> str:
    names = [path.name for path in list_checkpoints(folder.path)]
    best = best_checkpoint(folder.path)
    kept = f"{len(names)}, the last is `{names[-1]}`" if names else "none"
    if best is not None:
        kept += f", the best by its {'evaluation' if best.evaluated else 'training return'} `{best.path.name}`"
    files = [
        (folder.config_path.name, "every setting, resolved"),
        ("checkpoints/", f"the checkpoints of the run (safetensors and a manifest): {kept}"),
        (folder.metrics_path.name, "the metrics of all updates, one JSON object a line"),
        ("events.out.tfevents.*", "the same for TensorBoard"),
        (
            folder.launches_path.name,
            "when, where and by which command it was started and resumed, with which versions and code",
        ),
        (
            folder.log_path.name,
            "what the display showed, warnings of processes, how the run ended: each line with its time",
        ),
    ]
    if folder.deaths.exists():
        files.append((folder.deaths.name, "the tracebacks of processes that failed, and what the run did about it"))
    if folder.code.exists():
        files.append((f"{folder.code.name}/", "the modules of your own that it ran, and changes since their commit"))
    if folder.table_path.exists():
        files.append((folder.table_path.name, "the replay table that a resume continues with, mapped by all processes"))
    if folder.policy_path.exists():
        files.insert(2, (folder.policy_path.name, "the policy alone, as ONNX: observations in, greedy actions out"))
    return "## What is here\n\n" + "\n".join(f"- `{name}`: {text}" for name, text in files)
