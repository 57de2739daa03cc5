"""Arrays of what clients send: as NumPy makes them, unless text would take the memory of the machine."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs.given_arrays import array_given
from penstock.envs.masks import mask_rows
from penstock.errors import BadDataError
from penstock.serving.observations import array_of
from penstock.types import ArraySpec, Composite, Discrete, MultiDiscrete

TEXT = "A" * 100_000
SEEN = ArraySpec("obs", (400,), "float32")
WIDE = {
    "first": [TEXT, *[0] * 400],
    "last": [*[0.5] * 400, TEXT],
    "nested": [[0, 1]] * 200 + [[0, TEXT]],
    "in the first row": [[TEXT, 0]] + [[0, 1]] * 200,
    "bytes": [TEXT.encode(), *[0] * 400],
    "a number in text": ["1" * 100_000, *[0] * 400],
    "beside a row": [[0] * 400, TEXT],
    "in a tuple": (0, TEXT, *[0] * 400),
    "beside a number of NumPy": [np.float32(0), TEXT, *[0] * 400],
}
numbers = st.booleans() | st.integers(-(2**70), 2**70) | st.floats()
nested = st.recursive(numbers, lambda inner: st.lists(inner, max_size=4), max_leaves=12)


@pytest.fixture
def within_megabytes():
    """Fails if a test takes more memory than a few times what it was given. 400 wide texts would take 160 MB."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


@pytest.mark.usefixtures("within_megabytes")
@pytest.mark.parametrize("wide", WIDE.values(), ids=list(WIDE))
def test_text_among_numbers_takes_no_memory_and_is_refused(wide) -> None:
    with pytest.raises(BadDataError, match="which is no array of numbers"):
        array_of(wide, SEEN)
    for space in (Discrete(401), MultiDiscrete((200, 201), (0, 0), (2,), "int64")):
        with pytest.raises(BadDataError, match="the mask"):
            mask_rows(space, wide, None, "the mask")


@pytest.mark.usefixtures("within_megabytes")
def test_text_in_one_part_of_a_mask_does_not_widen_the_others() -> None:
    space = Composite(((("how",), Discrete(2)), (("which",), Discrete(400))))
    with pytest.raises(BadDataError, match="a mask holds 1 where"):
        mask_rows(space, {"how": TEXT, "which": [1] * 400}, None, "the mask")


@settings(deadline=None)
@given(nested)
def test_numbers_are_as_numpy_makes_them(values) -> None:
    try:
        wanted = np.asarray(values)
    except ValueError:
        with pytest.raises(ValueError, match="inhomogeneous"):
            array_given(values)
        return
    found = array_given(values)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.filterwarnings("error")
def test_numbers_and_arrays_of_numpy_may_be_in_lists() -> None:
    assert array_given([np.uint8(200), np.uint8(100)]).tolist() == [200, 100]
    assert array_given([np.full(2, 200, np.uint8)] * 3).shape == (3, 2)
    assert array_given([]).shape == (0,)
