"""Settings that are more than a number or a text."""

import json

import pytest

from penstock.config.tables import inlined
from penstock.errors import ConfigError


def test_a_file_becomes_text_that_a_run_keeps(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text("[trunk]\nhidden_sizes = [3]\n")
    assert json.loads(inlined(str(file))) == {"trunk": {"hidden_sizes": [3]}}
    assert inlined("resnet+lstm") == "resnet+lstm"
    file.write_text("trunk = [\n")
    with pytest.raises(ConfigError, match=r"net.toml is no TOML: ") as caught:
        inlined(str(file))
    assert "\n" not in str(caught.value)
    file.write_text("day = 2026-01-02\n")
    with pytest.raises(ConfigError, match=r"net.toml holds a date or a time, and no key takes one$"):
        inlined(str(file))
    with pytest.raises(ConfigError, match=r"gone.toml cannot be read: No such file"):
        inlined(str(tmp_path / "gone.toml"))
