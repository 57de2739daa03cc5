"""Demonstrations as users type them: their folders and shares."""

from pathlib import Path

import pytest

from penstock.config.demonstrations import check_whole, shares, shares_text
from penstock.config.flags import config_from_arguments
from penstock.config.sources import from_mapping, from_toml, to_toml, with_changes
from penstock.config.whole import Config
from penstock.errors import ConfigError


def config(**settings: object) -> Config:
    return from_mapping({"env": "X", "algo": "sac", **settings})


def test_one_folder_and_one_number_are_lists_of_one() -> None:
    """As in the config of every run that was trained before there could be several."""
    run = config(demonstrations="/a,b", demonstration_share=0.5).run
    assert (run.demonstrations, run.demonstration_share) == (("/a,b",), (0.5,))
    assert shares(run, alone=False) == (0.5,)
    assert shares(config(demonstrations="/a").run, alone=False) == (0.25,)
    assert shares_text(run, alone=False) == ()


def test_flags_are_repeated_or_have_commas() -> None:
    first = ("--demonstrations", "/a", "--demonstration_share", "0.25")
    second = ("--demonstrations", "/b", "--demonstration_share", "0.125")
    repeated = config_from_arguments(["--algo", "sac", *first, *second])
    commas = config_from_arguments(["--algo=sac", "--demonstrations=/a,/b", "--demonstration_share=0.25,0.125"])
    assert repeated == commas
    assert repeated.run.demonstrations == ("/a", "/b")
    assert shares(repeated.run, alone=False) == (0.25, 0.125)


def test_one_number_is_divided_equally_and_the_run_says_so() -> None:
    run = config(demonstrations=["/a", "/b", "/c"], demonstration_share=0.75).run
    assert shares(run, alone=False) == (0.25, 0.25, 0.25)
    (line,) = shares_text(run, alone=False)
    assert line == "--demonstrations fill these shares of each minibatch: 0.25 from /a, 0.25 from /b, 0.25 from /c"


def test_an_algorithm_that_learns_from_demonstrations_alone_gets_all_of_a_minibatch_from_them() -> None:
    assert shares(config(demonstrations="/a").run, alone=True) == (1.0,)
    several = config(demonstrations=["/a", "/b"]).run
    assert shares(several, alone=True) == (0.5, 0.5)
    weighed = config(demonstrations=["/a", "/b"], demonstration_share=[0.9, 0.1]).run
    assert shares(weighed, alone=True) == (0.9, 0.1)
    for run in (several, weighed, config().run):
        check_whole(run)
    with pytest.raises(ConfigError, match="sac learns from demonstrations alone, and these shares of a minibatch are"):
        check_whole(config(demonstrations=["/a", "/b"], demonstration_share=[0.5, 0.1]).run)


def test_all_rows_of_a_minibatch_may_be_demonstrations() -> None:
    each = config(demonstrations=["/a", "/b", "/c"], demonstration_share=[0.7, 0.2, 0.1]).run
    assert shares(each, alone=False) == (0.7, 0.2, 0.1)
    assert sum(shares(config(demonstrations=["/a", "/b"], demonstration_share=1).run, alone=False)) == 1.0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"demonstration_share": [0.5]}, "there are none; give --demonstrations"),
        (
            {"demonstrations": ["/a", "/b", "/c"], "demonstration_share": [0.1, 0.2]},
            "--demonstration_share has 2 numbers, and --demonstrations names 3; give one number for all together, or",
        ),
        (
            {"demonstrations": "/a", "demonstration_share": [0.1, 0.2]},
            "--demonstration_share has 2 numbers, and --demonstrations names 1",
        ),
        (
            {"demonstrations": ["/a", "/b"], "demonstration_share": [0.7, 0.5]},
            "--demonstration_share 0.7,0.5: these shares of a minibatch are 1.2 together; give at most 1",
        ),
        ({"demonstrations": ["/a", "/b"], "demonstration_share": [0.7, -0.1]}, "numbers from 0 to 1"),
        ({"demonstrations": "/a", "demonstration_share": 1.5}, "numbers from 0 to 1, separated by commas, not 1.5"),
        ({"demonstrations": "/a", "demonstration_share": "much"}, 'not the text "much"'),
        ({"demonstrations": ["/a", "/b/../a"]}, "--demonstrations names /a twice; give it once, with a larger"),
        ({"demonstrations": "  "}, "demonstrations takes run folders or folders of episodes"),
        ({"demonstrations": 7}, "demonstrations takes run folders or folders of episodes"),
    ],
)
def test_what_does_not_fit_is_one_line(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refusal:
        config(**settings)
    assert "\n" not in str(refusal.value)


def test_a_file_reads_back_and_that_of_an_older_run_as_well(tmp_path: Path) -> None:
    several = config(demonstrations=["/a", "/b"], demonstration_share=[0.25, 0.125])
    path = tmp_path / "config.toml"
    path.write_text(to_toml(several))
    assert from_toml(path) == several
    path.write_text('env = "X"\nalgo = "sac"\ndemonstrations = "/a"\ndemonstration_share = 0.5\n')
    assert from_toml(path) == config(demonstrations=["/a"], demonstration_share=[0.5])


def test_a_resume_may_have_others_with_their_shares() -> None:
    before = config(demonstrations=["/a", "/b"], demonstration_share=[0.25, 0.125])
    changed = with_changes(before, {"demonstrations": "/a", "demonstration_share": 0.5})
    assert shares(changed.run, alone=False) == (0.5,)
    with pytest.raises(ConfigError, match="--demonstration_share has 2 numbers, and --demonstrations names 1"):
        with_changes(before, {"demonstrations": "/a"})
