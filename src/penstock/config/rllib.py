"""Settings that RLlib's users know, in a config file: what each of them is called here. Reads no file."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from penstock.errors import ConfigError, either

__all__ = ["NAMES", "SAME", "TOLD_APART", "Renamed", "renamed"]

SAME = {
    "num_env_runners": "num_workers",
    "num_rollout_workers": "num_workers",
    "num_learners": "learners",
    "sgd_minibatch_size": "mini_batch_size",
    "num_epochs": "epochs",
    "num_sgd_iter": "epochs",
    "lambda": "gae_lambda",
    "lambda_": "gae_lambda",
    "entropy_coeff": "entropy_coef",
    "vf_loss_coeff": "value_coef",
    "kl_coeff": "kl_coef",
    "grad_clip": "max_grad_norm",
    "evaluation_interval": "eval_interval",
}
"""Name of RLlib -> our name of the same setting."""
_AT_LEAST_ONE = frozenset({"num_workers", "learners"})
"""RLlib writes 0 for "in the process of the driver". Here that is one process."""
TOLD_APART = ("num_workers", "num_envs", "learners", "device")
"""Our settings of which the note says that the command line wins. All but the last decide how a batch is split."""
_LANES = ("num_envs_per_env_runner", "num_envs_per_worker")
_MINIBATCH_OF_A_LEARNER = "minibatch_size"
"""In RLlib each learner walks over its own part of a batch in minibatches. Here all learners share each minibatch."""
_BATCH_OF_A_LEARNER = "train_batch_size_per_learner"
_BATCH = ("train_batch_size", _BATCH_OF_A_LEARNER)
_LEAST = {
    **dict.fromkeys((their for their, own in SAME.items() if own in _AT_LEAST_ONE), 0),
    **dict.fromkeys((*_LANES, *_BATCH, _MINIBATCH_OF_A_LEARNER), 1),
}
"""Name -> the smallest whole number that it takes, for settings from which others are computed."""
_GPUS = ("num_gpus", "num_gpus_per_learner")
_PART_OF_A_GPU = "--device cuda puts a learner on a GPU, and --resources says what it asks a Ray cluster for"
_PROCESSES = "the environments are split over num_workers processes"
_NOT_USED = {
    "num_cpus": "Ray knows the cores of each machine, and --resources says what nodes ask for",
    **dict.fromkeys(_GPUS, _PART_OF_A_GPU),
    "remote_worker_envs": _PROCESSES,
    "remote_env_runner_envs": _PROCESSES,
    "framework": "an update runs natively or on torch, as --backend says",
}
"""Name -> why this setting changes nothing here."""
_NO_COUNTERPART = {
    "vf_clip_param": "the loss of the value is not clipped",
    "use_critic": "an algorithm that learns advantages has a critic",
    "use_gae": "advantages are estimated as gae_lambda says",
    "clip_actions": "an action is always within the bounds of its space",
    "normalize_actions": "a policy always acts in the units of its space",
    "observation_filter": "normalize_obs = true scales observations",
}
"""Name -> why a run cannot be what this setting asks for."""
NAMES = frozenset(
    {*SAME, *_LANES, *_BATCH, _MINIBATCH_OF_A_LEARNER, *_NOT_USED, *_NO_COUNTERPART}
    | {"rollout_fragment_length", "batch_mode"}
)
"""All names of RLlib that are understood."""


class Renamed(NamedTuple):
    """Settings under the names of this library."""

    values: dict[str, Any]
    """Name -> value: settings that had RLlib's names, and settings that follow from them."""
    origins: dict[str, str]
    """Name -> the name of RLlib that it comes from."""
    used: frozenset[str]
    """The names of RLlib that were understood."""
    note: str
    """One line on what became of them; empty if there were none."""


def renamed(
    given: Mapping[str, Any], known: Collection[str], flags: Mapping[str, Any], labels: Mapping[str, str]
) -> Renamed:
    """Translate RLlib's settings among ``given`` into settings of this library.

    Args:
        given: all settings of the file, by name.
        known: names of the settings of the run and of its algorithm. A name that is known here keeps its meaning.
        flags: processes, lanes, learners and device (`TOLD_APART`) from the command line. They win over those of the
            file.
        labels: what all of these are called in error texts.

    Raises:
        ConfigError: a setting has no counterpart; both names of one setting are given; or a setting from which others
            are computed is no whole number.
    """
    theirs = {name: value for name, value in given.items() if name in NAMES and name not in known}
    if not theirs:
        return Renamed({}, {}, frozenset(), "")
    for name in sorted(theirs.keys() & _NO_COUNTERPART.keys()):
        raise ConfigError(f"{name} of RLlib has no counterpart: {_NO_COUNTERPART[name]}; leave it out")
    for name in theirs.keys() & _LEAST.keys():
        _check_count(theirs[name], labels[name], _LEAST[name])
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    said: list[str] = []

    def put(their: str, own: str, value: Any) -> None:  # noqa: ANN401 - a setting has its own type
        if own in given or own in values:
            raise ConfigError(f"{their} of RLlib is {own} here, which is given as well; leave out one of the two")
        if own in flags:
            said.append(f"{their} {theirs[their]} is not used: --{own} {flags[own]} is given")
            return
        values[own], origins[own] = value, their
        said.append(f"{their} {theirs[their]} became {own} {value}")

    for their in theirs.keys() & SAME.keys():
        own = SAME[their]
        value = theirs[their]
        put(their, own, max(1, value) if own in _AT_LEAST_ONE else value)
    if _MINIBATCH_OF_A_LEARNER in theirs:
        learners = _Counts({**given, **values, **flags}, labels).of("learners", 1, _MINIBATCH_OF_A_LEARNER)
        put(_MINIBATCH_OF_A_LEARNER, "mini_batch_size", theirs[_MINIBATCH_OF_A_LEARNER] * learners)
    _lanes(theirs, _Counts({**given, **values, **flags}, labels), put)
    _rollouts(theirs, _Counts({**given, **values, **flags}, labels), known, put, said)
    if "batch_mode" in theirs:
        _check_batch_mode(theirs["batch_mode"], labels["batch_mode"])
        said.append(f"batch_mode {theirs['batch_mode']} changes nothing: it is always so")
    unused = theirs.keys() & _NOT_USED.keys()
    # One GPU of each is the same wish in RLlib's older and newer words.
    if whole := [their for their in _GPUS if their in unused and _is_whole(theirs[their])]:
        put(whole[0], "device", "cuda")
        unused -= set(whole)
    said += [f"{their} {theirs[their]} is not used: {_NOT_USED[their]}" for their in unused]
    return Renamed(values, origins, frozenset(theirs), "settings of RLlib: " + "; ".join(sorted(said)))


_Put = Callable[[str, str, Any], None]


class _Counts(NamedTuple):
    """Processes, lanes and learners, as far as they are given, among other settings."""

    values: Mapping[str, Any]
    labels: Mapping[str, str]

    def of(self, name: str, default: int, asking: str) -> int:
        """How many there are.

        Args:
            name: one of these.
            default: the number, if none is given.
            asking: RLlib's setting that follows from it.

        Raises:
            ConfigError: it is no number.
        """
        value = self.values.get(name, default)
        if value == "auto":
            raise ConfigError(
                f"{self.labels[asking]} needs to know how many environment processes there are, and "
                f"{self.labels[name]} is auto; give a number"
            )
        # RLlib's own settings are checked, and have become at least 1.
        _check_count(value, self.labels.get(name, name), 1)
        return int(value)


def _check_count(value: object, label: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        shown = f'the text "{value}"' if isinstance(value, str) else value
        raise ConfigError(f"{label} takes a whole number of at least {least}, not {shown}")


def _check_batch_mode(mode: object, label: str) -> None:
    if mode == "complete_episodes":
        raise ConfigError(
            "batch_mode complete_episodes has no counterpart: a rollout has --num_steps steps of each lane, wherever "
            "episodes end; leave it out"
        )
    if mode != "truncate_episodes":
        raise ConfigError(f"{label} takes truncate_episodes, not {mode}")


def _is_whole(gpus: object) -> bool:
    """True for one GPU or more. A part of one says how RLlib shares it, not that a learner shall be there."""
    return isinstance(gpus, int | float) and gpus >= 1


def _lanes(theirs: Mapping[str, Any], so_far: _Counts, put: _Put) -> None:
    for name in theirs.keys() & set(_LANES):
        put(name, "num_envs", theirs[name] * so_far.of("num_workers", 1, name))


def _nearest(number: int, unit: int) -> str:
    """The multiples of ``unit`` that are next to a number, for a sentence."""
    below = number // unit * unit
    return either([f"{one:,}" for one in (below, below + unit) if one])


def _rollouts(theirs: Mapping[str, Any], so_far: _Counts, known: Collection[str], put: _Put, said: list[str]) -> None:
    """Translate the sizes of batches and fragments.

    For an algorithm with ``gae_lambda`` the size of a batch gives the steps of a rollout. For others it is the size of
    a minibatch.
    """
    fragment = theirs.get("rollout_fragment_length", "auto")
    if "rollout_fragment_length" in theirs and fragment == "auto":
        said.append("rollout_fragment_length auto changes nothing: num_steps follows from a batch, or is as given")
    given = [name for name in _BATCH if name in theirs]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} say the same in two ways; leave one of them out")
    batch = given[0] if given else None
    rows = 0 if batch is None else theirs[batch]
    if batch == _BATCH_OF_A_LEARNER:
        rows *= so_far.of("learners", 1, batch)
    whole = "gae_lambda" in known
    if batch is not None and whole:
        if "num_envs" in so_far.values:
            lanes = so_far.of("num_envs", 1, batch)
        else:
            # RLlib steps one environment in each process, unless it is told otherwise. Here each learner also needs a
            # lane of its own.
            lanes = math.lcm(so_far.of("num_workers", 1, batch), so_far.of("learners", 1, batch))
            put(batch, "num_envs", lanes)
        if rows % lanes:
            raise ConfigError(
                f"a batch of {rows} rows ({batch}) is no multiple of the {lanes} lanes; "
                f"give {_nearest(theirs[batch], lanes // math.gcd(lanes, rows // theirs[batch]))}"
            )
        put(batch, "num_steps", rows // lanes)
        if fragment != "auto":
            said.append(
                f"rollout_fragment_length {fragment} is not used: each lane gives all its rows of a batch together"
            )
        return
    if batch is not None:
        put(batch, "mini_batch_size", rows)
    if fragment != "auto":
        put("rollout_fragment_length", "num_steps", fragment)
