"""Demonstrations as users type them: which folders, and which share of each minibatch comes from which. Opens none."""

import math

from penstock.config.schema import RunConfig
from penstock.errors import ConfigError
from penstock.paths import expanded

__all__ = ["check_demonstrations", "check_whole", "settled_folders", "shares", "shares_text"]


def settled_folders(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The same folders with absolute paths, because a run may be resumed from another working directory."""
    return tuple(str(expanded(folder).resolve()) for folder in folders)


def shares(run: RunConfig, *, alone: bool) -> tuple[float, ...]:
    """The share of each minibatch that comes from each of the run's demonstrations. One number is divided equally.

    ``alone``: the algorithm learns from demonstrations alone, so that without a number they have all of a minibatch.
    """
    given, count = run.demonstration_share, len(run.demonstrations or ())
    if alone and given == RunConfig.demonstration_share:
        given = (1.0,)
    return given if len(given) == count else (given[0] / count,) * count


def shares_text(run: RunConfig, *, alone: bool) -> tuple[str, ...]:
    """A line on the share of each, if there are several demonstrations; else none. ``alone`` as for `shares`."""
    folders = run.demonstrations or ()
    if len(folders) < 2:
        return ()
    parts = (f"{share:.4g} from {folder}" for share, folder in zip(shares(run, alone=alone), folders, strict=True))
    return (f"--demonstrations fill these shares of each minibatch: {', '.join(parts)}",)


def check_whole(run: RunConfig) -> None:
    """Check that demonstrations fill the minibatches of an algorithm that learns from them alone.

    Raises:
        ConfigError: they do not.
    """
    if run.demonstrations and not math.isclose(total := math.fsum(shares(run, alone=True)), 1.0):
        raise ConfigError(
            f"--demonstration_share: {run.algo} learns from demonstrations alone, and these shares of a minibatch are "
            f"{total:g} together; leave it out, or give one number for each source, together 1"
        )


def check_demonstrations(run: RunConfig) -> None:
    """Check that demonstrations are named once each, and that their shares fit them.

    Raises:
        ConfigError: they do not.
    """
    folders, given = run.demonstrations or (), run.demonstration_share
    if not folders:
        if given != RunConfig.demonstration_share:
            raise ConfigError(
                "--demonstration_share needs demonstrations, and there are none; give --demonstrations as well"
            )
        return
    settled = settled_folders(folders)
    twice = next((folder for folder, path in zip(folders, settled, strict=True) if settled.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(f"--demonstrations names {twice} twice; give it once, with a larger --demonstration_share")
    if len(given) not in {1, len(folders)}:
        raise ConfigError(
            f"--demonstration_share has {len(given)} numbers, and --demonstrations names {len(folders)}; give one "
            "number for all together, or one for each"
        )
    if (total := math.fsum(given)) > 1.0:
        raise ConfigError(
            f"--demonstration_share {','.join(f'{share:g}' for share in given)}: these shares of a minibatch are "
            f"{total:g} together; give at most 1"
        )
