"""A policy is tried before it answers anybody."""

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.serving.policy import PolicySession
from penstock.serving.server.policy.acceptance import accepted
from penstock.serving.server.policy.source import Source
from tests.serving.server.harness import SPACES, source_of


@pytest.mark.parametrize("kind", [*SPACES, "slow:0.001:plain"])
def test_policies_that_answer_well_are_accepted(kind: str) -> None:
    assert accepted(source_of(kind)).spaces.obs


def version(number: int) -> Source:
    return source_of("plain")._replace(checkpoint=f"update-{number:08d}", version=number)


def test_parameters_that_are_not_finite_are_found() -> None:
    with pytest.raises(UsageError, match=r"^plain, version 14, (answers|gives) NaN or infinity"):
        accepted(version(14))


def test_an_answer_that_depends_on_the_other_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = PolicySession.answer

    def swayed(self, given):
        return answer(self, given) + np.float32(given["obs"].mean())

    monkeypatch.setattr(PolicySession, "answer", swayed)
    with pytest.raises(UsageError, match="answers an observation in a batch in another way than alone"):
        accepted(version(8))


def test_an_error_of_the_policy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self, given):
        raise ZeroDivisionError("a module of one's own")

    monkeypatch.setattr(PolicySession, "answer", fails)
    with pytest.raises(UsageError, match="version 8, fails: ZeroDivisionError: a module of one's own"):
        accepted(version(8))
