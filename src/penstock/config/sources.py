"""Makes a config from the user's settings: a TOML file or preset, flags, or a mapping."""

import contextlib
import dataclasses
import json
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from penstock.algorithm_lookup import AlgorithmPackage, find_algorithm
from penstock.config.commands import ResumeOptions
from penstock.config.fields import AUTO, DependentDefaults, Field, Value, field_table, fields_of
from penstock.config.hyper_parameters import algorithm_config, algorithm_fields
from penstock.config.opponents import SCORE, named_run
from penstock.config.other_names import OTHER_NAMES, unknown
from penstock.config.rllib import NAMES
from penstock.config.runtimes import CLUSTER, runtime_of
from penstock.config.schema import RunConfig
from penstock.config.tables import as_toml, inlined
from penstock.config.values import from_text, from_value
from penstock.config.whole import Config
from penstock.errors import ConfigError, nearest

__all__ = [
    "Setting",
    "algorithm_of",
    "from_mapping",
    "from_settings",
    "from_toml",
    "known_fields",
    "line_of",
    "preset_names",
    "preset_path",
    "preset_texts",
    "settings_of_file",
    "shown",
    "to_toml",
    "with_changes",
]

PRESETS = Path(__file__).parent / "presets"
_OTHER_FORMATS = frozenset({".yaml", ".yml", ".json"})
DISCRETE_ENV = "CartPole-v1"
"""If ``env`` is left out, that of algorithms without real-numbered actions, which cannot act in its default."""
LEAST_ENVS = RunConfig.num_envs
"""If ``num_envs`` is left out, it is the least multiple of ``num_workers`` that is at least this."""

_ARGUMENTS = {
    "run_name": "give --run_name NAME on the command line, or penstock.train(settings, run_name=...) in Python",
    "resume_if_exists": "give --resume_if_exists on the command line; in Python, penstock.resume goes on",
    "preset": "give --preset NAME on the command line",
    "config": "give --config FILE on the command line; in Python, penstock.train(penstock.from_toml(FILE))",
}
"""Arguments of a command that are easily taken for settings, and how to give them."""


class Setting(NamedTuple):
    """One value that the user gave."""

    value: object
    label: str
    """Its name in error texts: ``--lr``, or ``lr in run.toml``."""
    text: bool
    """The value is text from the command line, not yet parsed."""


def from_mapping(values: Mapping[str, Any]) -> Config:
    """Make a config from setting names and Python values. A setting that is left out has its default.

    Args:
        values: setting -> value, by the names of ``penstock train --help`` without the dashes.

    Returns:
        The whole config, checked.

    Raises:
        ConfigError: an unknown name, a value of another type or out of range, values that do not fit each other.

    Example:
        config = penstock.from_mapping({"env": "Pendulum-v1", "algo": "sac", "lr": 1e-3, "seed": 1})
        print(config.run.env, config.algorithm.lr)
    """
    for name in values:
        if not isinstance(name, str):
            raise ConfigError(f"the name of a setting is a text, not {name!r}")
    return from_settings({name: Setting(value, name, text=False) for name, value in values.items()})


def from_toml(path: Path) -> Config:
    """Read a config from a TOML file, such as the ``config.toml`` of a run folder.

    Args:
        path: the file. Its keys are those of `from_mapping`.

    Returns:
        The whole config, checked.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or `from_mapping` refuses its settings.
    """
    return from_settings(settings_of_file(path))


def to_toml(config: Config) -> str:
    """The whole config as TOML; reading it gives an equal config. ``None`` is written by leaving the key out."""
    sections, tables = [], {}
    for title, part in (("The run", config.run), (f"The algorithm: {config.run.algo}", config.algorithm)):
        values = {item.name: as_toml(getattr(part, item.name)) for item in dataclasses.fields(part)}
        tables.update({name: value for name, value in values.items() if _is_table(value)})
        plain = {name: value for name, value in values.items() if value is not None and name not in tables}
        sections.append(f"# {title}\n" + tomli_w.dumps(plain))
    if tables:
        # Tables come last, because TOML counts all keys behind a table as a part of it.
        sections.append("# Tables\n" + tomli_w.dumps(tables))
    return "\n".join(sections)


def settings_of_file(path: Path) -> dict[str, Setting]:
    """Every key of a TOML file, unchecked.

    Raises:
        ConfigError: the file cannot be read or is not TOML.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from error
    except ValueError as error:  # also an integer of more digits than Python reads
        other = path.suffix.lower() in _OTHER_FORMATS
        only = "; a config is read as TOML alone: write lr = 0.001 for each setting" if other else ""
        raise ConfigError(f"{path} is not TOML: {error}{only}") from error
    return {name.replace("-", "_"): Setting(value, f"{name} in {path}", text=False) for name, value in content.items()}


def preset_names() -> tuple[str, ...]:
    """Names of the presets of this package."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.toml")))


def preset_texts() -> dict[str, str]:
    """Name -> first line of each preset: one sentence on its purpose."""
    return {name: preset_path(name).read_text("utf-8").partition("\n")[0].lstrip("# ") for name in preset_names()}


def preset_path(name: str) -> Path:
    """The file of a preset.

    Raises:
        ConfigError: there is no preset of that name.
    """
    names = preset_names()
    if name not in names:
        raise ConfigError(f"unknown preset {name!r}{nearest(name, names) or '; `penstock presets` lists them'}")
    return PRESETS / f"{name}.toml"


def line_of(path: Path, name: str) -> str | None:
    """A setting's line in a TOML file, or its lines, for a sentence; ``None`` if it is not there."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next((place for place, line in enumerate(lines) if line.partition("=")[0].strip() == name), None)
    if first is None:
        return None
    for last in range(first, len(lines)):
        # A list may go over several lines.
        with contextlib.suppress(tomllib.TOMLDecodeError):
            tomllib.loads("\n".join(lines[first : last + 1]))
            return (
                f"line {first + 1}, {lines[first]}," if last == first else f"{name}, lines {first + 1} to {last + 1},"
            )
    return None


def from_settings(settings: Mapping[str, Setting], flags: Iterable[str] = ()) -> Config:
    """A config from the user's settings. The algorithm among them decides which other settings exist.

    Args:
        settings: name -> value that the user gave.
        flags: further names to suggest for an unknown one.

    Raises:
        ConfigError: see ``from_mapping``.
    """
    run_fields = field_table(RunConfig)
    algorithm = algorithm_of(settings)
    known = run_fields | {field.name: field for field in algorithm_fields(algorithm)}
    _refuse_unknown(settings, (*known, *flags))
    values = {name: _read(known[name], setting) for name, setting in settings.items()}
    if "env" not in values and "discrete" in algorithm.actions and "bounded" not in algorithm.actions:
        values["env"] = DISCRETE_ENV
    if "num_envs" not in values and isinstance(workers := values.get("num_workers"), int):
        values["num_envs"] = workers * -(-LEAST_ENVS // workers)
    if values.get("distributed") and "runtime" not in values:
        values["runtime"] = CLUSTER
    _refuse_contradiction(settings, values)
    run, own = RunConfig(**_part(values, run_fields)), _part(values, known.keys() - run_fields.keys())
    if issubclass(algorithm.config, DependentDefaults):
        own = {**algorithm.config.defaults_beside(own, run.num_envs), **own}
    return Config(run, algorithm_config(algorithm, own))


def _refuse_contradiction(settings: Mapping[str, Setting], values: Mapping[str, Any]) -> None:
    """Refuse ``--runtime ray --distributed False``. The config of a run folder may have both: it holds all settings."""
    given = [settings[name] for name in ("runtime", "distributed") if name in settings]
    typed = len(given) > 1 and all(setting.text for setting in given)
    if typed and values["runtime"] == CLUSTER and not values["distributed"]:
        raise ConfigError(f"--distributed False does not go with --runtime {CLUSTER}; leave out one of the two")


def known_fields(settings: Mapping[str, Setting]) -> dict[str, Field]:
    """All settings of a run with the algorithm that ``settings`` name.

    Raises:
        ConfigError: there is no such algorithm.
    """
    return field_table(RunConfig) | {field.name: field for field in algorithm_fields(algorithm_of(settings))}


def algorithm_of(settings: Mapping[str, Setting]) -> AlgorithmPackage:
    """The algorithm that ``settings`` name, or the default one.

    Raises:
        ConfigError: there is no such algorithm, or its package cannot be used.
    """
    return find_algorithm(str(_read(field_table(RunConfig)["algo"], settings.get("algo"))))


def with_changes(config: Config, settings: Mapping[str, Any]) -> Config:
    """The config of a resumed run with changed settings.

    Args:
        config: of the run before.
        settings: name -> new value, or a ``Setting`` from a command line.

    Raises:
        ConfigError: see ``from_mapping``; also a setting that a resumed run must keep, with the reason.
    """
    known, before = field_table(RunConfig, type(config.algorithm)), config.values()
    given = {
        name: value if isinstance(value, Setting) else Setting(value, name, text=False)
        for name, value in settings.items()
    }
    arguments = [field.name for field in fields_of(ResumeOptions)]
    _refuse_unknown(given, (*known, *arguments))
    for name, setting in given.items():
        if name not in known:
            raise ConfigError(f"{setting.label} is an argument of resume, not a setting of the run")
    values = {name: _read(known[name], setting) for name, setting in given.items()}
    if isinstance(model := values.get("model"), str):
        # The run has the content of a file, so that is what it is compared with.
        values["model"] = inlined(model)
    if isinstance(begin_with := values.get("begin_with"), str):
        # The run has the absolute path.
        values["begin_with"] = str(named_run(begin_with))
    for name, value in values.items():
        if known[name].fixed and value != before[name]:
            why = f"a resumed run keeps its own value, {shown(before[name])}, because {known[name].fixed}"
            raise ConfigError(f"{given[name].label} cannot become {shown(value)}: {why}")
    own = {field.name for field in dataclasses.fields(config.run)}
    algorithm = algorithm_config(find_algorithm(config.run.algo), _part({**before, **values}, before.keys() - own))
    changed = _part(values, own & values.keys())
    follows = {**_without_scores(config.run), **_follows(config.run, changed), **_decided_anew(changed)}
    return Config(dataclasses.replace(config.run, **{**follows, **changed}), algorithm)


def _without_scores(before: RunConfig) -> dict[str, Any]:
    """The user's own episode metrics: a resume may have other opponents, or none, and adds their scores anew."""
    own = tuple(name for name in before.episode_metrics or () if not name.startswith(SCORE))
    return {"episode_metrics": own or None} if before.opponents else {}


def _follows(before: RunConfig, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a cluster that change because a resume moves the run to one, or away from it, or to one learner."""
    runtime, distributed = changed.get("runtime"), changed.get("distributed")
    follows: dict[str, Any] = {}
    if runtime is None and distributed is not None and distributed != (before.runtime == CLUSTER):
        runtime = follows["runtime"] = runtime_of(None, distributed=distributed, default=RunConfig.runtime)
    if changed.get("learners") == 1 and "table_on" not in changed:
        follows["table_on"] = RunConfig.table_on
    if runtime not in {None, CLUSTER}:
        of_cluster = ("distributed", "address", "resources", "min_workers", "table_on")
        follows |= {name: getattr(RunConfig, name) for name in of_cluster if name not in changed}
    return follows


def _decided_anew(changed: Mapping[str, Any]) -> dict[str, Any]:
    """The settings to be decided again because they follow from one that has changed."""
    anew = ("exchange", "pace") if changed.get("learners") == 1 else ("pace",) if "exchange" in changed else ()
    return {name: AUTO for name in anew if name not in changed}


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(part, dict) for part in value))


def _refuse_unknown(settings: Mapping[str, Setting], known: Collection[str]) -> None:
    for name, setting in settings.items():
        if name in _ARGUMENTS and not setting.text:
            raise ConfigError(f"{setting.label} is no setting of a run: {_ARGUMENTS[name]}")
        if name not in known:
            if isinstance(setting.value, Mapping) and name not in OTHER_NAMES:
                raise ConfigError(
                    f"unknown setting {setting.label}: it is a table, and settings are not grouped; write its keys "
                    f"before all tables, without [{name}]"
                )
            kind, dashes = ("flag", "--") if setting.text else ("setting", "")
            # Files understand some names of another library, too. In Python the label is the name alone.
            suggested = () if dashes or setting.label == name else NAMES
            raise ConfigError(f"unknown {kind} {setting.label}{unknown(name, known, suggested, dashes)}")


def _read(field: Field, setting: Setting | None) -> Value | object:
    if setting is None:
        return field.default
    if setting.text:
        return from_text(field, str(setting.value), setting.label)
    value = _as_text(setting.value) if field.base == "str" else setting.value
    return from_value(field, _as_list(field, value) if field.many else value, setting.label)


def _as_text(value: object) -> object:
    """The text of a path, also of each path in a list. Other values stay as they are."""
    if isinstance(value, list | tuple):
        return [_as_text(part) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _as_list(field: Field, value: object) -> object:
    """A list of the value alone, if it is a number, or no list and the field says ``alone``; else the value itself."""
    shape = getattr(value, "shape", None)
    is_number = isinstance(value, int | float) or shape == ()
    is_list = isinstance(value, list | tuple) or bool(shape)
    return [value] if is_number or (field.alone and value is not None and not is_list) else value


def shown(value: object) -> str:
    """A value as the user types it on a command line."""
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def _part(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}
