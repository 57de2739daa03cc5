"""Settings of what a run keeps and reports. Writes nothing."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["RunFolderConfig"]


@dataclass(frozen=True, kw_only=True)
class RunFolderConfig(SettingsGroup):
    """The seed, the run folder, the checkpoints in it, and what a run prints and draws while it learns."""

    title: ClassVar[str] = "Seed, run folder, checkpoints, reports"

    seed: int = setting(
        0,
        "seed of networks, episodes and noise; makes a run repeatable with blocking",
        min=0,
        max=2**63 - 1,
        fixed="its episodes and its noise come from it",
    )
    begin_with: str | None = setting(
        None,
        "run folder of another run: begin with the policy of its latest checkpoint, in place of random networks; "
        "RUN@CHECKPOINT: with that of another one",
        pattern=r"(?s).*\S.*",
        form="a run folder, or RUN@CHECKPOINT",
        fixed="it has begun",
    )
    log_dir: str = setting(
        "./logs",
        "folder for run folders; each run makes its own in it",
        pattern=r"(?s).+",
        form="a folder",
        fixed="it continues in its own folder",
    )
    save_interval: int = setting(50, "updates between checkpoints", min=1)
    keep_checkpoints: int = setting(5, "number of latest checkpoints to keep; the best is kept as well", min=1)
    keep_every: int = setting(
        0, "also keep each checkpoint whose update is a multiple of this; 0: none for that reason", min=0
    )
    log_interval: int = setting(
        10,
        "updates between printed lines; at most one line a second, unless this is set to another number than 10; after "
        "10 s without a line, the next update has one at any rate",
        min=1,
    )
    tensorboard_axis: Literal["steps", "updates", "seconds"] = setting(
        "steps",
        "what TensorBoard's curves are drawn over: environment steps, updates, or whole seconds of training, with "
        "those before a resume; TensorBoard calls each of them a step",
        fixed="its curves so far are over it",
    )
    tensorboard_histograms: bool = setting(
        False,
        "also write a histogram of each layer's parameters for TensorBoard, at every checkpoint",
    )
