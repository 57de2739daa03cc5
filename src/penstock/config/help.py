"""The text of ``--help``, derived from the fields that are parsed. Prints nothing."""

import inspect
import textwrap
from collections.abc import Iterable, Sequence

from penstock.algorithm_lookup import AlgorithmPackage
from penstock.config.commands import ResumeOptions, TrainOptions
from penstock.config.fields import Field, fields_of
from penstock.config.flags import algorithm_from_arguments
from penstock.config.hyper_parameters import algorithm_fields
from penstock.config.schema import GROUPS, RunConfig

__all__ = ["draw_help", "options_help", "resume_help", "train_help"]

_SOURCES = (
    ("--preset NAME", "settings that work well for one task; `penstock presets` lists the presets"),
    (
        "--config FILE",
        "a TOML file of settings, named as below without the dashes; it wins over a preset, flags win over it",
    ),
)


def train_help(argv: Sequence[str], width: int) -> str:
    """The options of ``penstock train``, and all that `draw_help` says. Arguments and errors are the same."""
    name = _section("Name of the run", [_of_field(field, width) for field in fields_of(TrainOptions)])
    return f"{name}\n{draw_help(argv, width)}"


def draw_help(argv: Sequence[str], width: int) -> str:
    """Every setting of a run and of its algorithm, with its range and default.

    Args:
        argv: the command line that asks for help. Its preset, its file and its ``--algo`` select the algorithm.
        width: columns of the terminal.

    Raises:
        ConfigError: as `algorithm_from_arguments`.
    """
    algorithm = algorithm_from_arguments(argv)
    sections = (
        ("Preset and file", [_entry(flag, text, width) for flag, text in _SOURCES]),
        *((group.title, [_of_field(field, width) for field in fields_of(group)]) for group in GROUPS),
        (f"Algorithm: {algorithm.name}", [_of_field(field, width) for field in _own_first(algorithm)]),
    )
    return "\n".join(_section(title, entries) for title, entries in sections)


def options_help(options: type, width: int) -> str:
    """Every option of a command other than train."""
    entries = [_of_field(field, width) for field in fields_of(options)]
    return _section("Options", entries)


def resume_help(width: int) -> str:
    """The options of ``penstock resume``, and the settings of a run that may change."""
    settings = (field for field in fields_of(RunConfig) if not field.fixed)
    changing = [_entry(f"--{field.name}", f"{field.help}\n{field.takes}", width) for field in settings]
    others = "a setting of the algorithm (penstock train --algo NAME --help lists them), if it may change"
    title = "Settings of the run that may change; without its flag, a setting keeps its value"
    return "\n".join(
        (options_help(ResumeOptions, width), _section(title, [*changing, _entry("--NAME", others, width)]))
    )


def _own_first(algorithm: AlgorithmPackage) -> list[Field]:
    """The settings of an algorithm: its own first, then those that it shares with more and more others."""
    names = [name for kind in algorithm.config.__mro__ for name in inspect.get_annotations(kind)]
    return sorted(algorithm_fields(algorithm), key=lambda field: names.index(field.name))


def _section(title: str, entries: Iterable[str]) -> str:
    return f"{title}\n" + "".join(entries)


def _of_field(field: Field, width: int) -> str:
    if field.positional:
        return _entry(field.name.upper(), field.help, width)
    if field.required:
        default = "required"
    elif isinstance(field.default, tuple):
        default = f"default {','.join(map(str, field.default))}"
    else:
        default = f"default {'none' if field.default is None else field.default}"
    return _entry(f"--{field.name}", f"{field.help}\n{field.takes}; {default}", width)


def _entry(name: str, text: str, width: int) -> str:
    """A name on the left and its wrapped text on the right, or below it on a narrow terminal."""
    indent = 24 if width >= 60 else 6
    body = "\n".join(
        textwrap.fill(line, max(width - 1, 30), initial_indent=" " * indent, subsequent_indent=" " * indent)
        for line in text.splitlines()
    )
    head = f"  {name}"
    if len(head) + 2 > indent:
        return f"{head}\n{body}\n"
    return head + body[len(head) :] + "\n"
