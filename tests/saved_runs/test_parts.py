"""What is known of the parts of a run that a resume has changed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.agreement import learners_text
from penstock.config.nodes_text import policy_nodes_text
from penstock.config.schema import RunConfig
from penstock.saved_runs.launches import add_launch
from penstock.saved_runs.parts import Part, parts_of, parts_text
from penstock.saved_runs.run_folder import RunFolder

ONE = RunConfig(env="X", num_workers=2)
TWO = replace(ONE, learners=2, exchange="allreduce", pace="sync")
GOSSIP = replace(TWO, exchange="gossip")


def test_each_launch_begins_a_part_with_its_own_settings(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    add_launch(folder, None, TWO, 0)
    add_launch(folder, "update-00000040", replace(GOSSIP, max_batch=8), 40_000)
    add_launch(folder, "update-00000060", GOSSIP, 60_000)
    last = replace(GOSSIP, timesteps=70_000)
    assert parts_of(folder, last) == (
        Part(0, replace(TWO, timesteps=70_000)),
        Part(40_000, replace(last, max_batch=8)),
        Part(60_000, last),
    )


def test_what_a_launch_does_again_is_no_part(tmp_path: Path) -> None:
    """The second resume goes back to before the first one, the third one begins where the second one did."""
    folder = RunFolder(tmp_path)
    for run, steps in ((TWO, 0), (GOSSIP, 40_000), (ONE, 20_000), (GOSSIP, 20_000)):
        add_launch(folder, None, run, steps)
    assert parts_of(folder, GOSSIP) == (Part(0, TWO), Part(20_000, GOSSIP))


def test_launches_without_settings_are_not_known(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert parts_of(folder, TWO) == (Part(0, TWO),)
    folder.launches_path.write_text('{"checkpoint": null}\n')
    assert parts_of(folder, TWO) == (Part(0, TWO),)
    add_launch(folder, "update-00000040", GOSSIP, 40_000)
    assert parts_of(folder, GOSSIP) == (Part(40_000, GOSSIP),)


@pytest.mark.parametrize(
    "altered",
    [
        {"steps": "0", "settings": {}},
        {"steps": 0, "settings": ["learners"]},
        {"steps": 0, "settings": {"learners": "many"}},
        {"steps": 0, "settings": {"learners": 0}},
        {"steps": 0, "settings": {"max_wait": {}}},
    ],
)
def test_a_launch_that_was_altered_counts_as_none(tmp_path: Path, altered: dict[str, object]) -> None:
    folder = RunFolder(tmp_path)
    folder.launches_path.write_text(json.dumps(altered) + "\n")
    assert parts_of(folder, TWO) == (Part(0, TWO),)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([(0, ONE)], ""),
        ([(0, ONE), (40_000, ONE)], ""),
        ([(40_000, ONE)], ""),
        ([(0, TWO), (40_000, replace(TWO, num_workers=4))], "2 learners, allreduce, sync"),
        ([(0, TWO), (40_000, GOSSIP)], "2 learners, allreduce, sync, to 40,000 steps; then 2 learners, gossip, sync"),
        (
            [(0, ONE), (40_000, TWO), (50_000, TWO), (60_000, ONE)],
            "1 learner, to 40,000 steps; 2 learners, allreduce, sync, to 60,000 steps; then 1 learner",
        ),
        ([(40_000, GOSSIP)], "unknown, to 40,000 steps; then 2 learners, gossip, sync"),
    ],
)
def test_the_text_says_to_which_step_each_part_goes(parts: list[tuple[int, RunConfig]], text: str) -> None:
    assert parts_text([Part(*part) for part in parts], learners_text, "1 learner") == text


def test_policy_nodes_have_parts_as_well() -> None:
    nodes = replace(ONE, policy_placement="node", policy_nodes=2)
    said = parts_text([Part(0, nodes), Part(8, ONE)], policy_nodes_text, "in place")
    assert said == "2 policy nodes, to 8 steps; then in place"
