"""What home shows the hosts of the rollouts that come meanwhile."""

import pytest

from penstock.cluster.cut import watched
from penstock.cluster.stand_in import FollowerStandIn
from tests.cluster.handing import spread_program, wired
from tests.nodes.test_takeover import Watched

ENV, LIFE = 5, 7


@pytest.mark.parametrize("pushed_at", range(1, 9))
def test_a_learner_is_shown_the_oldest_rollout_first_whenever_it_is_pushed(pushed_at: int) -> None:
    """Its environment node pushes two before one of the reads, sequences 0 and 2. Four slots are looked at twice."""
    program = spread_program()
    wiring = wired(program)
    found = FollowerStandIn(wiring, program.node("learner.1"), LIFE, (), watched(program))
    stream = wiring.stream("rollouts")
    assert stream.slots == 4
    assert [stream.claim(ENV, sequence) for sequence in (0, 2)] == [0, 1]
    reads = 0

    def before() -> None:
        nonlocal reads
        reads += 1
        if reads == pushed_at:
            stream.push(0, ENV)
            stream.push(1, ENV)

    stream._words = Watched(stream._words, before)  # type: ignore[assignment]
    shown = [copy.sequence for _ in range(4) for copy in found.unseen()]
    assert shown == [0, 2]
