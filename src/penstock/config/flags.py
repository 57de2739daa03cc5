"""Reads command lines by the fields of dataclasses: ``--a_b 1``, ``--a-b=1``, a bare ``--flag`` for True."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from penstock.algorithm_lookup import AlgorithmPackage
from penstock.config.commands import ResumeOptions, TrainOptions, TuneOptions
from penstock.config.fields import AUTO, Field, field_table
from penstock.config.rllib import TOLD_APART, renamed
from penstock.config.schema import RunConfig
from penstock.config.sources import (
    Setting,
    algorithm_of,
    from_settings,
    known_fields,
    preset_path,
    settings_of_file,
)
from penstock.config.values import from_text, from_value
from penstock.config.whole import Config
from penstock.errors import ConfigError, nearest
from penstock.paths import expanded

__all__ = [
    "algorithm_from_arguments",
    "config_from_arguments",
    "file_note",
    "options_from_arguments",
    "resume_from_arguments",
    "train_from_arguments",
    "tune_from_arguments",
]

Options = TypeVar("Options")

_SOURCES = frozenset({"config", "preset"})
_ALSO = {"logdir": "log_dir", "algorithm": "algo"}
"""Spellings that users know from other tools."""


class _Line(NamedTuple):
    """A command line, split into positionals and flags."""

    positionals: list[str]
    flags: dict[str, Setting]
    behind: dict[str, str]
    """Words that are no values of the boolean flag before them -> that flag."""


def config_from_arguments(argv: Sequence[str]) -> Config:
    """The config of ``penstock draw ARGV``: a preset, then a file, then flags. Later ones win.

    The options of ``penstock train`` besides the settings change no program, and are left out.

    Raises:
        ConfigError: see ``from_settings``; also an unknown preset, a file that cannot be read, a stray argument.
    """
    _, line = _apart_from(TrainOptions, argv)
    return _config(line, TrainOptions)


def train_from_arguments(argv: Sequence[str]) -> tuple[TrainOptions, Config, dict[str, Setting]]:
    """The options of ``penstock train ARGV``, its config, and the settings that it gives, for a run that goes on.

    The settings are not yet parsed. They lack ``log_dir``, where that run was found, and what was left to penstock.

    Raises:
        ConfigError: as `config_from_arguments`; also an option's value that is out of range.
    """
    options, line = _apart_from(TrainOptions, argv)
    if options.resume_if_exists and options.run_name is None:
        raise ConfigError("--resume_if_exists is for a run with a name; give --run_name NAME")
    config, run = _config(line, TrainOptions), field_table(RunConfig)
    decided = {name for name, field in run.items() if field.fixed and AUTO in field.choices}
    given = {
        name: setting
        for name, setting in _settings(line).items()
        if name != "log_dir" and not (name in decided and setting.value == AUTO)
    }
    return options, config, given


def tune_from_arguments(argv: Sequence[str]) -> tuple[TuneOptions, Config, frozenset[str]]:
    """The options of ``penstock tune ARGV``, the config that its trials share, and which of its settings were given.

    Raises:
        ConfigError: as `config_from_arguments`; also an option's value that is out of range.
    """
    options, line = _apart_from(TuneOptions, argv)
    config = _config(line, TuneOptions)
    for word in ",".join(options.search or ()).split(","):
        name, equals, _ = word.partition("=")
        if equals and (given := line.flags.get(name.strip().replace("-", "_"))):
            raise ConfigError(
                f"{given.label} {given.value} and --search {name.strip()}=... both say what {name} is; leave out one"
            )
    return options, config, frozenset(_settings(line))


def _apart_from(options: type[Options], argv: Sequence[str]) -> tuple[Options, _Line]:
    """The options of a command that also takes every setting of a run, and its line without them."""
    table = field_table(options)
    line = _taken_apart(argv, {**field_table(RunConfig), **table})
    own = line._replace(positionals=[], flags={name: flag for name, flag in line.flags.items() if name in table})
    rest = line._replace(flags={name: flag for name, flag in line.flags.items() if name not in table})
    return _options(options, own), rest


def _config(line: _Line, options: type) -> Config:
    if line.positionals:
        stray = line.positionals[0]
        _check_not_behind(stray, line)
        raise ConfigError(f"unexpected argument {stray!r}; settings are written as --name value: --env CartPole-v1")
    preset, settings = _of_preset(line), _settings(line)
    if preset:
        _check_preset(str(line.flags["preset"].value), preset, settings)
    return from_settings(settings, flags=(*_SOURCES, *_flags_of(options)))


def _check_not_behind(stray: str, line: _Line) -> None:
    """Check that an argument which nothing takes is not meant for the switch before it.

    Raises:
        ConfigError: it stands behind one.
    """
    if stray in line.behind:
        raise ConfigError(f"{line.behind[stray]} takes True or False, not {stray!r}")


def _settings(line: _Line) -> dict[str, Setting]:
    """The settings of a preset, a file and flags. Later ones win."""
    settings = _of_preset(line)
    if "config" in line.flags:
        settings |= _of_file(line)[0]
    return settings | {name: flag for name, flag in line.flags.items() if name not in _SOURCES}


def file_note(argv: Sequence[str]) -> str:
    """One line on settings of RLlib in the file of ``--config``; empty if it has none.

    Raises:
        ConfigError: as `config_from_arguments`.
    """
    line = _taken_apart(argv, field_table(RunConfig))
    return _of_file(line)[1] if "config" in line.flags else ""


def algorithm_from_arguments(argv: Sequence[str]) -> AlgorithmPackage:
    """The algorithm that ``penstock train ARGV`` would train with. A flag of ARGV may still lack its value.

    Raises:
        ConfigError: unknown algorithm or preset, a file that cannot be read, or a package that cannot be used.
    """
    words = [part for word in argv for part in word.split("=", 1)]
    given = {
        _name_of(flag): Setting(word, flag, text=True)
        for flag, word in itertools.pairwise(words)
        if flag.startswith("--") and not word.startswith("-")
    }
    line = _Line([], given, {})
    settings = _of_preset(line)
    if "config" in given:
        settings |= settings_of_file(_config_file(line))
    if "algo" in given:
        settings["algo"] = given["algo"]
    return algorithm_of(settings)


def _of_preset(line: _Line) -> dict[str, Setting]:
    """The settings of the preset of ``--preset``; none without that flag."""
    return settings_of_file(preset_path(str(line.flags["preset"].value))) if "preset" in line.flags else {}


def _config_file(line: _Line) -> Path:
    return expanded(str(line.flags["config"].value))


def _of_file(line: _Line) -> tuple[dict[str, Setting], str]:
    """The settings of the file of ``--config``, those of RLlib under our names, and a note on these."""
    settings = settings_of_file(_config_file(line))
    # The names of RLlib are read for the algorithm of the run, which a preset may name.
    named = {"algo": line.flags["algo"]} if "algo" in line.flags else {}
    known = known_fields({**_of_preset(line), **settings, **named})
    winning = {
        name: from_text(known[name], str(flag.value), flag.label)
        for name, flag in line.flags.items()
        if name in TOLD_APART
    }
    labels = {name: one.label for name, one in {**settings, **line.flags}.items()}
    found = renamed({name: one.value for name, one in settings.items()}, known, winning, labels)
    kept = {name: one for name, one in settings.items() if name not in found.used}
    own = {
        name: Setting(value, settings[found.origins[name]].label, text=False) for name, value in found.values.items()
    }
    return kept | own, found.note


def _check_preset(name: str, preset: Mapping[str, Setting], settings: Mapping[str, Setting]) -> None:
    """Check that the algorithm of ``settings`` has every setting of this preset.

    Raises:
        ConfigError: it lacks one, because the preset is for another algorithm.
    """
    known = known_fields(settings)
    unknown = [setting for setting in preset if setting not in known]
    if unknown and "algo" in preset and "algo" in settings:
        asked, own = settings["algo"].value, preset["algo"].value
        raise ConfigError(
            f"preset {name} is for --algo {own}: {asked} has no setting {unknown[0]}; leave out --algo {asked}, or "
            f"--preset {name}"
        )


def options_from_arguments(options: type[Options], argv: Sequence[str]) -> Options:
    """A dataclass of options from a command line. Positional fields are given without a flag.

    Raises:
        ConfigError: an unknown flag, a value out of range, too many or too few arguments.
    """
    table = field_table(options)
    line = _taken_apart(argv, table)
    known = _flags_of(options)
    for name, flag in line.flags.items():
        if name not in known:
            near = nearest(f"--{name}", [f"--{other}" for other in known])
            of_train = name in field_table(RunConfig)
            if of_train:
                raise ConfigError(f"{flag.label} belongs to a run: penstock train takes it, this command does not")
            raise ConfigError(f"unknown flag {flag.label}{near}")
    return _options(options, line)


def resume_from_arguments(argv: Sequence[str]) -> tuple[ResumeOptions, dict[str, Setting]]:
    """The options of ``penstock resume ARGV``, and the settings of the run that it gives, not yet parsed.

    Raises:
        ConfigError: an option's value is out of range, too many or too few arguments.
    """
    line = _taken_apart(argv, field_table(RunConfig))
    own = _flags_of(ResumeOptions)
    settings = {name: flag for name, flag in line.flags.items() if name not in own}
    options = {name: flag for name, flag in line.flags.items() if name in own}
    return _options(ResumeOptions, line._replace(flags=options)), settings


def _flags_of(options: type) -> set[str]:
    """Names of the options that have a flag."""
    return {name for name, field in field_table(options).items() if not field.positional}


def _options(options: type[Options], line: _Line) -> Options:
    table = field_table(options)
    positional = [field for field in table.values() if field.positional]
    repeated = bool(positional) and positional[-1].many
    if len(line.positionals) > len(positional) and not repeated:
        stray = line.positionals[len(positional)]
        _check_not_behind(stray, line)
        raise ConfigError(f"unexpected argument {stray!r}")
    if missing := [field for field in positional[len(line.positionals) :] if field.required]:
        raise ConfigError(f"{missing[0].name.upper()} is missing: {missing[0].help}")
    values = {name: from_text(table[name], str(item.value), item.label) for name, item in line.flags.items()}
    absent = [field for field in table.values() if field.required and not field.positional and field.name not in values]
    if absent:
        raise ConfigError(f"--{absent[0].name} is missing: {absent[0].help}")
    for place, field in enumerate(positional[: len(line.positionals)]):
        # The last positional may stand for all words that are left. A word of it may hold commas.
        given: object = line.positionals[place:] if field.many else line.positionals[place]
        values[field.name] = from_value(field, given, field.name.upper())
    return options(**values)


def _taken_apart(argv: Sequence[str], fields: Mapping[str, Field]) -> _Line:
    """Split a command line. The last of two equal flags counts, unless its field ``adds``.

    The word behind a flag is its value, unless that is a flag itself. Behind a boolean flag only words such as ``true``
    are values: in ``eval --json RUN``, ``RUN`` is a positional.
    """
    booleans = {name for name, field in fields.items() if field.base == "bool"}
    adding = {name for name, field in fields.items() if field.adds}
    line = _Line([], {}, {})
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        if not word.startswith("--") or word == "--":
            line.positionals.append(word)
            continue
        spelled, equals, value = word.partition("=")
        name = _name_of(spelled)
        if not equals:
            follows = argv[position] if position < len(argv) else None
            if follows is not None and _is_value(follows, boolean=name in booleans):
                value = follows
                position += 1
            else:
                value = "True"
                if follows is not None and name in booleans:
                    line.behind[follows] = spelled
                if name in _SOURCES:
                    raise ConfigError(f"{spelled} needs a value")
                if name in fields.keys() - booleans:
                    raise ConfigError(f"{spelled} needs a value: {fields[name].takes}")
        if name in adding and name in line.flags:
            value = f"{line.flags[name].value},{value}"
        line.flags[name] = Setting(value, spelled, text=True)
    return line


def _name_of(flag: str) -> str:
    """The name of the setting or option that a flag stands for."""
    name = flag.removeprefix("--").replace("-", "_")
    return _ALSO.get(name, name)


def _is_value(word: str, *, boolean: bool) -> bool:
    if word.startswith("--"):
        return False
    return not boolean or word.lower() in {"true", "false", "yes", "no", "on", "off", "0", "1"}
