"""Plays greedy episodes one after the other and films them: an animated picture, or a window of the environment's own.

Counts no episode, judges nothing.
"""

import contextlib
import io
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from penstock.envs.deadline import deadline
from penstock.envs.gymnasium import ScalarSource
from penstock.envs.pictures import picture_of
from penstock.envs.sources import open_source
from penstock.envs.vector import VectorSource
from penstock.errors import EnvError
from penstock.nodes.evaluation.episodes import PlaySettings, play
from penstock.seeding import final_seed
from penstock.types import Array, EnvRecipe

__all__ = ["Filmed", "film", "show"]

FRAMES_PER_SECOND = 30.0
"""Steps a second of an environment that does not say how fast it is shown. No more pictures a second are kept."""
SLOWEST = 0.01
"""Steps a second. A smaller ``render_fps`` is taken for a mistake."""
SMALLEST, LARGEST = 160, 480
"""Pixels of the longer side. Smaller pictures are enlarged by whole numbers, larger ones are made smaller."""
LONGEST = 65_535
"""The longest time that one picture of a GIF stands still, in hundredths of a second."""
PAUSE_S = 1.0
"""How long the last picture of an episode stands still."""


class Filmed(NamedTuple):
    """What was played."""

    gif: bytes
    """Empty if it was shown in a window."""
    episodes: tuple[tuple[float, int], ...]
    """Return and length of each episode that was played to its end."""
    is_cut: bool
    """The picture was full before all episodes had ended."""


def film(
    settings: PlaySettings, published: Mapping[str, Array], episodes: int, seconds: float, limit_s: float
) -> Filmed:
    """Play so many episodes, or as much of them as fits into the picture.

    Args:
        settings: what is played, by which policy; one lane.
        published: the policy's parameters and statistics.
        episodes: at least 1.
        seconds: how long the picture may last.
        limit_s: longest time for playing, in seconds.

    Raises:
        EnvError: the environment cannot be made, has no picture, or takes too long.
        BadDataError: it gave NaN or infinity.
    """
    source, refused = _opened(settings, "rgb_array")
    # The first lane is filmed. Of several agents it is one, whose episodes are only some of those that are played.
    reel = Reel(settings.name, seconds, episodes if source.agents == 1 else None)
    source.film(reel.take)
    played = _played(settings, source, published, episodes, limit_s, is_enough=lambda: reel.is_full)
    if not reel.pictures:
        if refused is not None and "takes no render_mode" not in str(refused):
            # It would have a picture, but for this.
            raise refused
        raise EnvError(
            f"environment {settings.name} has no picture: it renders no rgb_array, and observes no image; let its "
            "class take render_mode, and its render give uint8 [height, width, 3]"
        )
    return Filmed(reel.gif(), played, is_cut=reel.is_over and len(played) < episodes)


def show(settings: PlaySettings, published: Mapping[str, Array], episodes: int, limit_s: float) -> Filmed:
    """Play so many episodes in the window that the environment opens. The arguments are those of `film`."""
    source, _ = _opened(settings, "human")
    played = _played(settings, source, published, episodes, limit_s, is_enough=lambda: False)
    return Filmed(b"", played, is_cut=False)


def _opened(settings: PlaySettings, render_mode: str) -> tuple[ScalarSource | VectorSource, EnvError | None]:
    """Make the environment with this ``render_mode``.

    For a picture, an environment that cannot be made so is made without: it may observe images. Then the error comes
    with it.
    """
    env = settings.env if isinstance(settings.env, EnvRecipe) else EnvRecipe(settings.env, {}, ())
    rendering = replace(env, arguments={**env.arguments, "render_mode": render_mode})
    opened = partial(
        open_source,
        vector=settings.vector,
        num_lanes=1,
        seed=settings.seed,
        ignore_obs=settings.ignore_obs,
        mask=settings.spaces.mask,
        masks=settings.masks,
    )
    with deadline(settings.work_limit_s, f"making environment {settings.name}"):
        try:
            return opened(rendering), None
        except EnvError as error:
            refused = error
            if render_mode == "human":
                which = "render_mode" if "takes no render_mode" in str(error) else 'render_mode "human"'
                raise EnvError(
                    f"environment {settings.name} opens no window: it takes no {which}; let its class open one for "
                    '"human", or leave out --window to film it'
                ) from error
        return opened(settings.env), refused


def _played(
    settings: PlaySettings,
    source: ScalarSource | VectorSource,
    published: Mapping[str, Array],
    episodes: int,
    limit_s: float,
    *,
    is_enough: Callable[[], bool],
) -> tuple[tuple[float, int], ...]:
    """Return and length of each episode that was played to its end. Closes the source."""
    numbers = itertools.chain(range(episodes), itertools.repeat(None))
    found = []
    try:
        backend = settings.make_backend()
        backend.load(published)
        with deadline(limit_s, f"playing {episodes} episodes of environment {settings.name}"):
            for ended in play(
                settings,
                source,
                backend,
                seed_of=partial(final_seed, settings.seed),
                next_number=lambda _lane: next(numbers),
            ):
                if ended is not None and not ended.spoilt:
                    found.append((ended.episode_return, ended.length))
                if is_enough():
                    break
    finally:
        # A window that cannot close takes no finished film away, and hides no error.
        with contextlib.suppress(Exception):
            source.close()
    return tuple(found)


class Reel:
    """The pictures of some episodes, in order.

    Args:
        name: of the environment, for error texts.
        seconds: how long they may be shown.
        episodes: how many there are; ``None``: as many as there is time for.

    Attributes:
        pictures: in 256 colours.
        is_full: no more time is left, all episodes have ended, or the first one had no picture.
    """

    def __init__(self, name: str, seconds: float, episodes: int | None) -> None:
        self.pictures: list[Image.Image] = []
        self.is_full = False
        self._name = name
        self._left = seconds
        self._episodes = math.inf if episodes is None else episodes
        self._seconds: list[float] = []
        """How long each picture is shown."""
        self._step = 0
        """Of the present episode."""

    @property
    def is_over(self) -> bool:
        """True if no more time is left for the episodes that have not ended."""
        return self._left <= 0 and self._episodes > 0

    def take(self, env: Any, obs: Any, ended: bool) -> None:  # noqa: ANN401 - any environment
        """Keep the present picture, unless the environment goes faster than pictures are kept.

        Args:
            env: the environment.
            obs: its latest observation.
            ended: its episode ends here.
        """
        speed = _speed(env)
        each = max(1, int(np.ceil(speed / FRAMES_PER_SECOND)))
        is_kept = ended or not self._step % each
        self._step = 0 if ended else self._step + 1
        if self.is_full or not is_kept:
            return
        found = picture_of(self._name, env, obs)
        if found is None:
            # The end of an episode is always looked at. After one without a picture no other has one.
            self.is_full = ended and not self.pictures
            return
        picture = _sized(Image.fromarray(found))
        if self.pictures and picture.size != self.pictures[0].size:
            # An animation has one size.
            picture = picture.resize(self.pictures[0].size)
        self.pictures.append(picture.quantize(method=Image.Quantize.FASTOCTREE))
        self._seconds.append(PAUSE_S if ended else each / speed)
        self._left -= self._seconds[-1]
        self._episodes -= ended
        self.is_full = self._left <= 0 or not self._episodes

    def gif(self) -> bytes:
        """The pictures as an animated GIF that begins anew at its end."""
        pictures: list[Image.Image] = []
        shown: list[int] = []
        owed = 0.0
        for picture, seconds in zip(self.pictures, self._seconds, strict=True):
            # A GIF counts hundredths of a second. Viewers show each picture for at least two. What is rounded off one
            # picture is added to the next one: 30 pictures last a second.
            owed += 100 * seconds
            hundredths = max(2, round(owed))
            owed -= hundredths
            if pictures and picture == pictures[-1]:
                # Pillow joins equal pictures as well, but fails where they stand still for too long.
                shown[-1] = min(shown[-1] + hundredths, LONGEST)
            else:
                pictures.append(picture)
                shown.append(hundredths)
        file = io.BytesIO()
        first, *more = pictures
        first.save(file, "GIF", save_all=True, append_images=more, duration=[10 * one for one in shown], loop=0)
        return file.getvalue()


def _speed(env: Any) -> float:  # noqa: ANN401 - any environment
    """How many steps a second the environment is to be shown."""
    metadata = getattr(env, "metadata", None)
    said = metadata.get("render_fps") if isinstance(metadata, Mapping) else None
    if not isinstance(said, int | float | np.number) or not SLOWEST <= said < math.inf:
        return FRAMES_PER_SECOND
    return float(said)


def _sized(image: Image.Image) -> Image.Image:
    """The picture in a size that can be looked at."""
    longer = max(image.size)
    if longer > LARGEST:
        return image.resize([max(1, round(side * LARGEST / longer)) for side in image.size])
    times = -(-SMALLEST // longer)
    return image.resize([times * side for side in image.size], Image.Resampling.NEAREST)
