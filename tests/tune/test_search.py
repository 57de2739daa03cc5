"""What --search says, as data; every mistake is one line."""

import pytest

from penstock.config.sources import from_mapping
from penstock.errors import ConfigError
from penstock.tune.search import Search, read_search

CONFIG = from_mapping({"env": "X"})


def test_kinds_and_several_settings_in_one_word():
    words = ("lr=loguniform:1e-5:1e-2,mini_batch_size=choice:64", "128", "256", "epochs=int:1:5", "gamma=uniform:0.9:1")
    assert read_search(words, CONFIG) == (
        Search("lr", "loguniform", (1e-5, 1e-2)),
        Search("mini_batch_size", "choice", (64, 128, 256)),
        Search("epochs", "int", (1, 5)),
        Search("gamma", "uniform", (0.9, 1.0)),
    )


def test_a_choice_may_be_a_list():
    words = ("hidden_sizes=choice:64", "64+64", "256 + 256")
    assert read_search(words, CONFIG) == (Search("hidden_sizes", "choice", ((64,), (64, 64), (256, 256))),)


def test_of_a_list_that_may_be_one_value_each_trial_gets_one():
    config = from_mapping({"env": "X", "algo": "sac", "demonstrations": "/a"})
    words = ("demonstration_share=uniform:0.1:0.5", "demonstrations=choice:/a", "/b")
    share, folder = read_search(words, config)
    assert (share, folder.values) == (Search("demonstration_share", "uniform", (0.1, 0.5)), ("/a", "/b"))


def test_a_name_with_dashes_begins_the_next_setting():
    assert read_search(["lr=uniform:0:1,mini-batch-size=choice:64,128, clip-param=uniform:0:1"], CONFIG) == (
        Search("lr", "uniform", (0.0, 1.0)),
        Search("mini_batch_size", "choice", (64, 128)),
        Search("clip_param", "uniform", (0.0, 1.0)),
    )


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("lr", "write NAME=choice"),
        ("lr=choice:", "--search lr=choice: cannot be read; write NAME=choice"),
        ("lr=normal:0:1", "--search lr=normal:0:1: unknown kind normal; write NAME=choice"),
        ("lr=logunifrom:1e-5:1e-2", "unknown kind logunifrom; write NAME=choice.*; did you mean loguniform, "),
        ("lr=:0:1", "cannot be read; write NAME=choice"),
        ("lrr=uniform:0:1", "unknown setting lrr; did you mean lr"),
        ("learning_rate=uniform:0:1", "unknown setting learning_rate; it is lr here$"),
        ("lr=uniform:0.1", "takes a lowest and a highest value"),
        ("lr=uniform:0.1:0.01", "the lowest value comes first"),
        ("lr=loguniform:0:0.1", "loguniform needs a lowest value above 0"),
        ("lr=int:1:2", "search it with uniform, loguniform or choice"),
        ("epochs=uniform:1:2", "search it with int or choice"),
        ("gamma=uniform:0:2", "--search gamma takes a number from 0 to 1, not 2"),
        ("lr=choice:0.1,lr=choice:0.2", "names lr twice"),
        ("num_workers=int:auto:4", "int takes two numbers, as int:LOW:HIGH"),
        ("target_return=uniform:none:5", "uniform takes two numbers, as uniform:LOW:HIGH"),
        ("hidden_sizes=int:32:64", "hidden_sizes takes .*; search it with choice$"),
    ],
)
def test_a_mistake_is_one_line(word: str, says: str):
    with pytest.raises(ConfigError, match=says) as refusal:
        read_search(word.split(","), CONFIG)
    assert "\n" not in str(refusal.value)


def test_that_nothing_is_searched_is_refused():
    with pytest.raises(ConfigError, match="nothing is searched; for example: --search lr=loguniform:1e-5:1e-2"):
        read_search((), CONFIG)
