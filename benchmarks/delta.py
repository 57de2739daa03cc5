"""Delta encoding of 10,000 floats of which 1 % change a tick: time to encode and decode, and the bytes that travel.

    python -m benchmarks.delta                # a few seconds
    python -m benchmarks.delta --write FILE

Each row makes what travels of the 40,000 bytes of a tick and those of the tick before. Then it makes the 40,000 bytes
again. The peers are NumPy (places and values of the elements that changed), zlib on the difference, and zlib on all.
The limit is one copy and one comparison of the bytes. The bars: 20 us, and a twentieth of the bytes.
"""

import zlib
from collections.abc import Callable
from itertools import cycle, pairwise
from typing import NamedTuple

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.measured import parser, report
from benchmarks.timing import Contestant, compare, each_call
from penstock.gamecore.delta import decode, encode
from penstock.types import Array

FLOATS, CHANGED, TICKS = 10_000, 100, 16
CASE = f"{FLOATS:,} floats, {CHANGED} of them new"
MAY_BE_US, MAY_BE_BYTES = 20.0, 4 * FLOATS // 20


class Way(NamedTuple):
    """One way to send a tick to somebody who has the tick before."""

    what: str
    pack: Callable[[bytes, bytes], bytes]
    """Bytes of the tick before and of this tick -> what travels."""
    unpack: Callable[[bytes, bytes], bytes]
    """Bytes of the tick before and what has travelled -> bytes of this tick."""


def ticks(seed: int) -> list[tuple[bytes, bytes]]:
    """Pairs of a tick and the next one."""
    numbers = np.random.default_rng(seed)
    obs = numbers.normal(size=FLOATS).astype("<f4")
    found = [obs.tobytes()]
    for _ in range(TICKS):
        obs[numbers.choice(FLOATS, CHANGED, replace=False)] = numbers.normal(size=CHANGED)
        found.append(obs.tobytes())
    return list(pairwise(found))


def ours(base: bytes, body: bytes) -> bytes:
    """The delta. These ticks always have one."""
    delta = encode(base, body)
    if delta is None:
        raise RuntimeError("a delta is no smaller than its body")
    return delta


def places_and_values(base: bytes, body: bytes) -> bytes:
    """Places as int32, then values, of the elements whose bits differ."""
    before, after = words(base), words(body)
    (places,) = np.nonzero(before != after)
    return places.astype("<i4").tobytes() + after[places].tobytes()


def at_places(base: bytes, delta: bytes) -> bytes:
    """The other way round."""
    half = len(delta) // 2
    after = words(base).copy()
    after[words(delta[:half])] = words(delta[half:])
    return after.tobytes()


def words(body: bytes) -> Array:
    """The bits of floats, as whole numbers ``[n]``."""
    return np.frombuffer(body, "<i4")


WAYS = (
    Way("encode, decode", ours, lambda base, delta: decode(base, delta, 4 * FLOATS)),
    Way("NumPy: places and values", places_and_values, at_places),
    Way(
        "zlib, level 1, of the difference",
        lambda base, body: zlib.compress((words(base) ^ words(body)).tobytes(), 1),
        lambda base, delta: (words(base) ^ words(zlib.decompress(delta))).tobytes(),
    ),
    Way("zlib, level 1", lambda _, body: zlib.compress(body, 1), lambda _, delta: zlib.decompress(delta)),
)


def round_of(way: Way, calls: int) -> Callable[[], Array]:
    """A round in which ticks are packed and unpacked, each timed."""
    pairs = cycle(ticks(0))

    def there_and_back() -> None:
        base, body = next(pairs)
        way.unpack(base, way.pack(base, body))

    return each_call(there_and_back, calls)


def bytes_of(way: Way) -> int:
    """The most bytes that travel for one tick."""
    sizes = []
    for base, body in ticks(1):
        packed = way.pack(base, body)
        if way.unpack(base, packed) != body:
            raise RuntimeError(f"{way.what} lost a bit")
        sizes.append(len(packed))
    return max(sizes)


def copy_and_compare(calls: int) -> Callable[[], Array]:
    """One comparison of a tick with an equal one, to the last byte, and one copy of it."""
    pairs = cycle([(body, bytes(bytearray(body))) for _, body in ticks(0)])

    def compare_and_copy() -> None:
        body, same = next(pairs)
        if body == same:
            bytearray(body)

    return each_call(compare_and_copy, calls)


def main() -> None:
    """Measure, print, and write the result."""
    arguments = parser("delta", __doc__, rounds=7)
    arguments.add_argument("--calls", type=positive_int, default=1000, help="ticks of a round")
    args = arguments.parse_args()
    sizes = {way.what: bytes_of(way) for way in WAYS}
    contestants = [
        Contestant(way.what, "peer" if number else "penstock", round_of(way, args.calls))
        for number, way in enumerate(WAYS)
    ]
    contestants.append(Contestant("one comparison and one copy", "limit", copy_and_compare(args.calls)))
    mine, *others = compare(CASE, contestants, args.rounds)
    setting = {"bytes_of_a_tick": 4 * FLOATS, "bytes_may_be": MAY_BE_BYTES, "bytes": sizes}
    report(arguments, args, [mine._replace(may_be_us=MAY_BE_US), *others], setting)
    print("\nbytes of a tick of 40,000")
    for what, size in sizes.items():
        print(f"  {what:48} {size:10}     1/{4 * FLOATS / size:.0f}")


if __name__ == "__main__":
    main()
