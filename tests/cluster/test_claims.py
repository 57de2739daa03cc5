"""What becomes of claims if the head of the cluster is lost. What they do while it lives: `test_hosts.py`."""

import pytest
import ray

from penstock.cluster import claims as module
from penstock.cluster.claims import Claims


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls to Ray. Each would wait for a minute if the head is lost."""
    made: list[str] = []

    def placement_group(bundles: list[dict[str, float]], **_: object) -> str:
        made.append(f"claim {bundles}")
        return "a claim"

    monkeypatch.setattr(module, "placement_group", placement_group)
    monkeypatch.setattr(module, "remove_placement_group", lambda claim: made.append(f"release {claim}"))
    monkeypatch.setattr(module, "own_id", lambda: "home")
    return made


def test_a_lost_head_is_asked_for_nothing(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opens = True
    monkeypatch.setattr(module, "_head_answers", lambda: opens)
    with Claims() as claims:
        for group in ("env.0", "env.1", "env.2"):
            claims.take(group, None, {"cpu": 1.0})
        claims.ask("learner", {"gpu": 1.0})
        claims.release("env.2")
        assert len(calls) == 5
        opens = False
        claims.take("env.0", None, {"cpu": 1.0})
        claims.ask("learner", {"gpu": 1.0})
        claims.release("env.1")
    assert len(calls) == 5


def test_a_claim_that_ended_while_the_head_was_away_ends_once_it_is_back(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = True
    monkeypatch.setattr(module, "_head_answers", lambda: opens)
    with Claims() as claims:
        claims.take("env.0", None, {"cpu": 1.0})
        claims.take("env.1", None, {"cpu": 1.0})
        opens = False
        claims.release("env.0")
        opens = True
        claims.take("env.2", None, {"cpu": 1.0})
        assert calls[2:] == ["release a claim", "claim [{'CPU': 1.0}]"]
    assert calls[4:] == ["release a claim"] * 2


def test_claims_end_with_the_block_while_the_head_answers(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_head_answers", lambda: True)
    with Claims() as claims:
        claims.take("env.0", None, {"cpu": 1.0})
        claims.take("env.1", None, {})
    assert calls == ["claim [{'CPU': 1.0}]", "release a claim"]


def test_an_error_of_ray_does_not_keep_claims(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The head may be lost between the two."""

    def lost(_: object) -> None:
        raise ray.exceptions.GetTimeoutError("lost")

    monkeypatch.setattr(module, "_head_answers", lambda: True)
    monkeypatch.setattr(module, "remove_placement_group", lost)
    with Claims() as claims:
        claims.take("env.0", None, {"cpu": 1.0})
    assert calls == ["claim [{'CPU': 1.0}]"]
