import subprocess
import sys

from penstock.config.listing import algorithm_lines
from penstock.registry import ALGORITHMS, Registry


def test_every_algorithm_has_a_line():
    lines = algorithm_lines()
    assert [line.split()[0] for line in lines] == list(ALGORITHMS.names())
    ppo = next(line for line in lines if line.startswith("ppo "))
    assert " any " in ppo
    assert " on_policy " in ppo
    assert ppo.endswith(
        "Proximal policy optimisation with a clipped surrogate (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)"
    )
    sac = next(line for line in lines if line.startswith("sac "))
    assert "Box with bounds " in sac
    assert " off_policy " in sac
    assert "1812.05905" in sac
    # The last column begins at the same place in every line.
    assert len({line.index("policy  ") for line in lines if " off_policy " in line}) == 1


def test_a_package_that_says_nothing_is_described_by_its_config(monkeypatch):
    only = Registry("algorithm", {"mine": "penstock.algorithms.a2c"})
    monkeypatch.setattr("penstock.config.listing.ALGORITHMS", only)
    monkeypatch.setattr("penstock.algorithm_lookup.ALGORITHMS", only)
    monkeypatch.setattr("penstock.algorithms.a2c.__doc__", None)
    text = "Hyper-parameters of A2C. It learns from many short batches, and from each only once"
    assert algorithm_lines()[0].split("  ")[-1] == text


def test_the_list_needs_no_torch():
    code = "import sys, penstock.config.listing as l; l.algorithm_lines(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
