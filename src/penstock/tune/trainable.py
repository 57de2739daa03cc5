"""A run as a trainable of Ray Tune, and the config of each trial. Chooses no settings."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import ray.tune

from penstock.config.sources import from_mapping
from penstock.config.whole import Config
from penstock.errors import PenstockError
from penstock.tune.trial import FAILED, TrialRun

__all__ = ["config_with", "trainable"]


def trainable(config: Config, folder: Path, given: Collection[str] | None = None) -> type:
    """A class for those who drive Ray Tune themselves. Its parameters are settings of a run.

    Args:
        config: of every run, save the parameters.
        folder: each trial makes a folder with its id there, with its run folder in it.
        given: as for `config_with`.

    Returns:
        A `ray.tune.Trainable`. It reports what `TrialRun.wait` returns, and ``run_folder``.
    """
    # Ray Tune goes to another folder before it begins a trial.
    started_in, folder = Path.cwd(), folder.resolve()

    class Run(ray.tune.Trainable):  # type: ignore[misc]
        """One run."""

        def setup(self, settings: dict[str, Any]) -> None:
            self._trial = TrialRun(folder / self.trial_id, started_in)
            self._settings = dict(settings)
            self._begun = False

        def step(self) -> dict[str, Any]:
            if not self._begun:
                # Not in `setup`: a trial that takes over another one begins with a checkpoint.
                self._trial.train(config_with(config, self._settings, given))
                self._begun = True
            found = self._trial.wait()
            run = self._trial.run_folder
            return {**found, "done": bool(found["done"]), "run_folder": None if run is None else str(run)}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self._trial.save(Path(checkpoint_dir))

        def load_checkpoint(self, checkpoint_dir: str) -> None:
            copies = [path for path in Path(checkpoint_dir).iterdir() if (path / "checkpoints").is_dir()]
            if not copies:
                raise PenstockError(f"{FAILED}the trial that it takes over has left no checkpoint")
            self._trial.stop()
            whole = config_with(config, self._settings, given)
            self._trial.resume(copies[0], self._settings, whole.run.timesteps)
            self._begun = True

        def cleanup(self) -> None:
            self._trial.stop()

    return Run


def config_with(config: Config, settings: Mapping[str, Any], given: Collection[str] | None = None) -> Config:
    """The config of a trial.

    Args:
        config: of all trials.
        settings: of this one. Any setting may be among them, also those that a resumed run must keep.
        given: the settings of ``config`` that the user gave. All others follow from these and from ``settings``.
            ``None``: not known; those that are not at their defaults.
    """
    values = config.values()
    if given is not None:
        # The algorithm that a user leaves out decides which environment is the default.
        values = {name: value for name, value in values.items() if name in given or name == "env"}
    elif settings.get("algo", config.run.algo) != config.run.algo:
        # Another algorithm has defaults of its own.
        values = {name: value for name, value in values.items() if name not in _at_their_defaults(config.algorithm)}
    told = {name: value for name, value in values.items() if value is not None} | dict(settings)
    if config.run.num_workers == "auto" and "num_workers" not in settings:
        # Trials share the machine: each takes one core, so that many run at once.
        told["num_workers"] = 1
    return from_mapping(told)


def _at_their_defaults(settings: Any) -> set[str]:  # noqa: ANN401 - each algorithm has its own class
    defaults = type(settings)()
    return {item.name for item in fields(settings) if getattr(settings, item.name) == getattr(defaults, item.name)}
