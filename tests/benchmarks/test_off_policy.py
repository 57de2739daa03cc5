"""The order of rounds, and what is judged. Nothing is trained here."""

from benchmarks.off_policy import PEERS, SETTING, TOGETHER, WAYS, Ran, begin, entry, in_turn, judged
from benchmarks.runs import Curve


def test_every_other_round_goes_the_other_way() -> None:
    assert [in_turn(["a", "b", "c"], number) for number in range(3)] == [list("abc"), list("cba"), list("abc")]


def test_each_side_is_judged_by_the_best_median() -> None:
    found = {name: [Ran(100.0, {})] * 3 for name in WAYS} | {name: [Ran(50.0, {})] * 3 for name in PEERS}
    # Medians 150 and 60; the means would be 200 and 40.
    found[list(WAYS)[1]] = [Ran(rate, {}) for rate in (100.0, 150.0, 350.0)]
    found[list(PEERS)[-1]] = [Ran(rate, {}) for rate in (0.0, 60.0, 60.0)]
    found[TOGETHER] = [Ran(259.0, {})] * 3
    assert [(bar.value, bar.holds) for bar in judged(found)] == [(2.5, True), (259.0, False)]


def test_a_way_is_written_with_every_round() -> None:
    rounds = [Ran(10.04, {"learner": 0.5}), Ran(30.0, {"learner": 0.25}), Ran(20.0, {"learner": 0.0})]
    assert entry(rounds) == {
        "updates_per_s": [10.0, 30.0, 20.0],
        "median": 20.0,
        "range": [10.0, 30.0],
        "idle": {"learner": [0.5, 0.25, 0.0]},
    }


def test_the_peer_may_step_as_many_environments_as_often_as_ours() -> None:
    lanes = ["--num_envs", str(SETTING["num_envs"]), "--train_freq", str(SETTING["num_steps"])]
    assert sorted(PEERS.values()) == [[*shape, "--threads", str(n)] for shape in (lanes, []) for n in (1, 2)]


def test_nothing_before_the_first_updates_is_measured() -> None:
    # 1,000 rows before the first update, and four turns of 64; turns of one worker's 32 rows, and of both workers' 64.
    assert begin(Curve([960, 992, 1024, 1248, 1280], [0.0] * 5, [0.0] * 5)) == 4
    assert begin(Curve([960, 1216, 1256], [0.0] * 3, [0.0] * 3)) == 2
