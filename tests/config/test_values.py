from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest

from penstock.algorithms.ppo.spec import PPOConfig
from penstock.config.fields import field_table, fields_of
from penstock.config.values import count_of, from_text, from_value
from penstock.errors import ConfigError


@dataclass(frozen=True)
class Everything:
    number: int = field(default=3, metadata={"min": 1, "max": 1_000_000})
    rate: float = field(default=0.5, metadata={"min": 0.0, "max": 1.0})
    free: float = 0.0
    switch: bool = False
    text: str = "a"
    pick: Literal["red", "green"] = "red"
    named: str = field(default="x", metadata={"choices": ("x", "y")})
    auto: int | Literal["auto"] = field(default="auto", metadata={"min": 1})
    maybe: float | None = None
    sizes: tuple[int, ...] = field(default=(64, 64), metadata={"min": 1})
    names: tuple[str, ...] = ("a",)
    shaped: str = field(default="cpu", metadata={"pattern": r"cpu|cuda(:\d+)?", "form": "cpu or cuda"})


FIELDS = field_table(Everything)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("number", "12", 12),
        ("number", "1_000", 1000),
        ("number", "1e6", 1_000_000),
        ("rate", "1", 1.0),
        ("rate", "3e-4", 3e-4),
        ("free", "-200", -200.0),
        ("switch", "True", True),
        ("switch", "no", False),
        ("text", " spaces stay ", " spaces stay "),
        ("pick", "green", "green"),
        ("auto", "auto", "auto"),
        ("auto", "4", 4),
        ("maybe", "none", None),
        ("maybe", "-1.5", -1.5),
        ("sizes", "64,32", (64, 32)),
        ("sizes", "(64,)", (64,)),
        ("sizes", "[400, 300]", (400, 300)),
        ("sizes", " ((64, 32)) ", (64, 32)),
        ("names", "won,speed[m/s]", ("won", "speed[m/s]")),
        ("names", "[won, speed[m/s]]", ("won", "speed[m/s]")),
        ("names", "[a],(b)", ("[a]", "(b)")),
        ("names", "[a],[b]", ("[a]", "[b]")),
        ("shaped", "cuda:1", "cuda:1"),
    ],
)
def test_text_is_read_as_its_field_wants_it(name, text, value):
    read = from_text(FIELDS[name], text, f"--{name}")
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("number", "0", "--number takes a whole number from 1 to 1,000,000, not 0"),
        ("number", "1.5", "whole number"),
        ("number", "inf", "whole number"),
        ("number", "many", "not many"),
        ("free", "-inf", "not -inf"),
        ("number", "", "not nothing"),
        ("rate", "1.1", "a number from 0 to 1, not 1.1"),
        ("rate", "nan", "not nan"),
        ("free", "inf", "not inf"),
        ("switch", "perhaps", "True or False, not perhaps"),
        ("pick", "blue", "one of red, green, not blue"),
        ("named", "z", "one of x, y, not z"),
        ("auto", "atuo", "auto or a whole number of at least 1, not atuo"),
        ("sizes", "", "whole numbers of at least 1, separated by commas"),
        ("sizes", "64,0", "not 0"),
        ("shaped", "gpu", "cpu or cuda, not gpu"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_what_would(name, text, says):
    with pytest.raises(ConfigError) as refusal:
        from_text(FIELDS[name], text, f"--{name}")
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("rate", 1, 1.0),
        ("sizes", [8, 8], (8, 8)),
        ("maybe", None, None),
        ("auto", "auto", "auto"),
        ("switch", True, True),
    ],
)
def test_a_value_takes_its_fields_own_type(name, value, kept):
    assert from_value(FIELDS[name], value, name) == kept
    assert type(from_value(FIELDS[name], value, name)) is type(kept)


@pytest.mark.parametrize(
    ("name", "value"),
    [("auto", 2**63), ("maybe", []), ("number", True), ("number", 3.0), ("number", "3"), ("switch", 1),
     ("text", 1), ("sizes", "64"), ("sizes", 64),
     ("sizes", []), ("sizes", [64.0]), ("rate", None), ("rate", float("nan")), ("number", {})],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(name, value):
    with pytest.raises(ConfigError):
        from_value(FIELDS[name], value, name)


def test_a_whole_number_of_hundreds_of_digits_is_refused():
    for name, value in (("auto", 10**400), ("auto", 10**5000), ("free", 10**400)):
        with pytest.raises(ConfigError, match=r"number.*, not a number of \d+ bits$"):
            from_value(FIELDS[name], value, name)
    with pytest.raises(ConfigError, match="auto or a whole number of at least 1, not a number of 1329 bits"):
        from_text(FIELDS["auto"], 400 * "9", "--auto")


def test_a_model_that_is_a_class_is_told_how_to_name_it():
    (model,) = (one for one in fields_of(PPOConfig) if one.name == "model")
    with pytest.raises(ConfigError, match='"module:name" of a class of your own, not <class'):
        from_value(model, Everything, "model")


def test_a_type_that_no_command_line_can_write_is_the_authors_mistake():
    @dataclass
    class Wrong:
        thing: dict[str, int] = field(default_factory=dict)

    with pytest.raises(TypeError, match="thing"):
        fields_of(Wrong)


def test_two_settings_cannot_share_a_name():
    @dataclass
    class Also:
        rate: float = 1.0

    with pytest.raises(TypeError, match=r"Also\.rate"):
        field_table(Everything, Also)


def test_a_count_is_a_whole_number_of_at_least_1():
    assert (count_of(1, "n"), count_of(np.int64(5), "n")) == (1, 5)
    for bad in (0, -2, 1.0, "5", None, True, np.array([1, 2])):
        with pytest.raises(ConfigError, match="n takes a whole number of at least 1, not "):
            count_of(bad, "n")


def test_every_shipped_setting_has_a_help_text():
    from penstock.algorithm_lookup import find_algorithm
    from penstock.config.commands import EvalOptions, PlotOptions, ResumeOptions
    from penstock.config.schema import RunConfig

    configs: list[Any] = [RunConfig, EvalOptions, PlotOptions, ResumeOptions]
    configs += [find_algorithm(name).config for name in ("ppo", "a2c")]
    for config in configs:
        for setting in fields_of(config):
            assert setting.help, f"{config.__name__}.{setting.name}"
