"""The picture of an environment: what it renders, or else the image that it observes."""

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from penstock.envs.pictures import picture_of
from penstock.errors import EnvError

FRAME = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


def env(rendered: Any, **more: Any) -> Any:
    return SimpleNamespace(render=lambda: rendered, **more)


def same(found: Any, expected: Any) -> None:
    assert found.dtype == np.uint8
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, expected)


def test_what_is_rendered_counts_before_what_is_observed() -> None:
    same(picture_of("e", env(FRAME), np.zeros((9, 9), np.uint8)), FRAME)
    same(picture_of("e", env(np.concatenate([FRAME, FRAME[..., :1]], -1)), None), FRAME)
    # All frames since the last call: the newest counts. Of a vector environment, the first lane's.
    same(picture_of("e", env([FRAME + 1, FRAME]), None), FRAME)
    same(picture_of("e", env((FRAME, FRAME + 1), num_envs=2), None), FRAME)


@pytest.mark.parametrize("rendered", [None, "+---+", [], np.zeros((4, 5))])
def test_an_observed_image_stands_in_where_nothing_is_rendered(rendered: Any) -> None:
    image = np.arange(30, dtype=np.uint8).reshape(5, 6)
    in_colours = np.repeat(image[..., None], 3, -1)
    same(picture_of("e", env(rendered), image), in_colours)
    same(picture_of("e", env(rendered), {"speed": 1.0, "eye": (image, 3)}), in_colours)
    same(picture_of("e", env(rendered), FRAME[:, :3]), FRAME[:, :3])
    # Of a stack, the newest frame is the last one, wherever its axis is.
    stack = np.stack([image, image, image, image + 7])
    same(picture_of("e", env(rendered), stack), np.repeat(image[..., None] + 7, 3, -1))
    same(picture_of("e", env(rendered), np.moveaxis(stack, 0, -1)), np.repeat(image[..., None] + 7, 3, -1))


def test_numbers_are_no_image() -> None:
    assert picture_of("e", SimpleNamespace(), np.zeros((8, 8), np.float32)) is None
    assert picture_of("e", SimpleNamespace(), {"eye": np.zeros(4, np.uint8)}) is None


def test_a_failure_to_render_is_one_line_where_no_image_is_observed() -> None:
    def fails() -> None:
        raise RuntimeError("no screen\nfound")

    broken = SimpleNamespace(render=fails)
    same(picture_of("e", broken, np.zeros((9, 9), np.uint8)), np.zeros((9, 9, 3)))
    with pytest.raises(EnvError, match=r"^environment e cannot render: RuntimeError: no screen found$"):
        picture_of("e", broken, np.zeros(3))


def test_an_environment_that_does_not_render_has_no_picture() -> None:
    """`gymnasium.Env.render` itself raises NotImplementedError."""
    assert picture_of("e", gymnasium.Env(), np.zeros(3)) is None
    same(picture_of("e", gymnasium.Env(), FRAME), FRAME)
