"""A run as a trainable of Ray Tune, and the config of each trial. Chooses no settings."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import ray.tune

from penstock.config.sources import from_mapping
from penstock.config.whole import Config
from penstock.errors import PenstockError
from penstock.tune.trial import FAILED, TrialRun

__all__ = ["config_with", "trainable"]


def trainable(config: Config, folder: Path) -> type:
    """A class for those who drive Ray Tune themselves. Its parameters are settings of a run.

    Args:
        config: of every run, save the parameters.
        folder: each trial makes a folder with its id there, with its run folder in it.

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
                self._trial.train(config_with(config, self._settings))
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
            self._trial.resume(copies[0], self._settings, config_with(config, self._settings).run.timesteps)
            self._begun = True

        def cleanup(self) -> None:
            self._trial.stop()

    return Run


def config_with(config: Config, settings: Mapping[str, Any]) -> Config:
    """The config of a trial. ``settings`` may hold any setting, also those that a resumed run must keep."""
    values = config.values()
    if settings.get("algo", config.run.algo) != config.run.algo:
        # Another algorithm has defaults of its own. Of this one's settings, only those off their default were given.
        values = {name: value for name, value in values.items() if name not in _at_their_defaults(config.algorithm)}
    given = {name: value for name, value in values.items() if value is not None}
    given |= settings
    if config.run.num_workers == "auto" and "num_workers" not in settings:
        # Trials share the machine: each takes one core, so that many run at once.
        given["num_workers"] = 1
    return from_mapping(given)


def _at_their_defaults(settings: Any) -> set[str]:  # noqa: ANN401 - each algorithm has its own class
    defaults = type(settings)()
    return {item.name for item in fields(settings) if getattr(settings, item.name) == getattr(defaults, item.name)}
