"""PolicyNode: answers the questions of many nodes, in batches. One call of the policy answers a batch.

Answers are written in place, into the rows. A `BatchRule` says when the waiting questions leave. The node steps no
environment and does not know the algorithm.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.nodes.contract import Ports
from penstock.policies.acting import Binds, BoundRows, PolicySettings, bound_rows
from penstock.policies.acting_session import ActingSession
from penstock.policies.batching import BatchRule, QuestionQueue
from penstock.registry import load
from penstock.types import Arrays, PolicyBackend, Question, Wanted

__all__ = ["PolicyNode", "PolicyNodeSettings"]


@dataclass(frozen=True)
class PolicyNodeSettings:
    """Which policy answers, and when."""

    policy: PolicySettings
    work_limit_s: float
    """How long making the policy may take, in seconds."""
    rule: BatchRule


MOST_BOUND = 1024
"""Slots that stay bound to a version of the policy. Each takes some KB, and binding takes as long as some answers."""
APART_BYTES = 256 * 1024
"""Size of the parameters up to which a native policy answers the questions of a batch one by one, in place.

They stay in the cache, so to gather the questions and scatter the answers would cost more than a batch saves. And each
asker goes on as soon as it has its own answer.
"""


@dataclass(eq=False)
class _Model:
    """One version of the policy, ready to answer."""

    backend: PolicyBackend
    version: int = -1
    publication: int = 0
    bound: dict[tuple[int, int], BoundRows] = field(default_factory=dict)
    """By asker and slot."""


class _Call(NamedTuple):
    """The part of one question in a call of the backend."""

    inputs: Arrays
    """name -> ``[n, ...]``."""
    out: Arrays
    """Where the outputs are written: name -> ``[n, ...]``."""


class PolicyNode:
    """Answers edge ``act`` with the parameters of board ``policy``.

    From one ``refresh`` to the next an asker gets answers from one version, even if another asker already uses a later
    one. At most one version per asker is held at a time.

    The carry of a lane lies with its asker. So this node may die at any time: its successor reads the same carry and
    writes the same answer.
    """

    def __init__(self, settings: PolicyNodeSettings) -> None:
        policy = self._policy = settings.policy
        self._open_limit_s = settings.work_limit_s
        self._rule = settings.rule
        self._published: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in policy.policy.published()}
        self._memory = tuple(spec.name for spec in policy.policy.carry)
        self._sessions: dict[int, ActingSession] = {}
        """By asker."""
        self._answering: dict[int, _Model] = {}
        """By asker."""

    def open(self, ports: Ports) -> None:
        """Make the policy."""
        self._questions = ports.questions("act")
        self._queue = QuestionQueue(self._rule, lanes=self._questions.rows(0)["action"].shape[2])
        self._board = ports.board_reader("policy")
        with ports.busy("make the policy", self._open_limit_s):
            self._latest = self._make()
        self._models = [self._latest]
        size = sum(values.nbytes for values in self._published.values())
        self._apart = isinstance(self._latest.backend, Binds) and not self._memory and size <= APART_BYTES

    def ready(self) -> bool:
        """True if a question has come, or a batch leaves."""
        return self._questions.waiting() or self._queue.leaves(time.monotonic())

    def due(self) -> float:
        """When the next batch leaves at the latest. Implements `penstock.nodes.contract.Timed`."""
        return self._queue.due()

    def step(self) -> None:
        """Take the questions that have come, and answer a batch if one leaves."""
        now = time.monotonic()
        self._queue.add(self._questions.take(), now)
        if self._queue.leaves(now):
            self._answer(self._queue.take(now))

    def close(self) -> None:
        """Nothing is held beyond memory."""

    def _answer(self, batch: Sequence[Question]) -> None:
        """Answer a batch, for each version first its rows, then its values: by one call each, or rows one by one."""
        calls: dict[tuple[_Model, bool], list[Question]] = {}
        for question in batch:
            if question.refresh or question.asker not in self._answering:
                self._renew(question.asker)
            key = self._answering[question.asker], question.wanted == Wanted.ROW
            calls.setdefault(key, []).append(question)
        for (model, rows), questions in calls.items():
            answer = self._answer_rows if rows else self._answer_values
            parts = [[question] for question in questions] if rows and self._apart else [questions]
            for part in parts:
                answer(model, part)
                for question in part:
                    self._questions.answer(question.asker, model.version)

    def _make(self) -> _Model:
        backend = self._policy.backend
        return _Model(load(backend.build)(*backend.arguments))

    def _renew(self, asker: int) -> None:
        """Answer this asker with the latest published parameters from now on."""
        self._answering.pop(asker, None)
        # Read the number before the board. If the board is newer by then, the next refresh reads it again.
        publication = self._board.publication()
        if self._latest.publication != publication:
            used = self._answering.values()
            unused = next((model for model in self._models if model not in used), None)
            if unused is None:
                unused = self._make()
                self._models.append(unused)
            unused.publication, unused.version = publication, self._board.read(self._published)
            unused.backend.load(self._published)
            self._latest = unused
        self._answering[asker] = self._latest

    def _answer_rows(self, model: _Model, questions: Sequence[Question]) -> None:
        """Answer questions about rows: write all outputs of ``act``, and the carry behind it."""
        if len(questions) == 1 and not self._memory:
            # In place: gathering and scattering would take longer than a small policy.
            self._bound(model, questions[0]).act(questions[0].row, questions[0].step)
        else:
            self._answer_together(model, questions)
        for question in questions:
            # The asker wrote the version that it knew. The version that answered may be later: it is written here.
            self._questions.rows(question.asker)["policy_version"][question.slot, question.row] = model.version

    def _answer_together(self, model: _Model, questions: Sequence[Question]) -> None:
        """Answer questions about rows by one call of the backend."""
        calls = []
        for question in questions:
            outputs = self._row(question, self._policy.outputs)
            handed_on = self._questions.next_carry(question.asker)
            inputs = self._session(question).inputs(self._given(question), question.step)
            calls.append(_Call(inputs, {**outputs, **handed_on}))
        self._run(model, calls)
        for question, call in zip(questions, calls, strict=True):
            self._session(question).finish(call.out["action"], question.step, call.inputs)

    def _answer_values(self, model: _Model, questions: Sequence[Question]) -> None:
        """Answer questions about values alone. They need no noise, and hand no carry on."""
        calls = []
        for question in questions:
            if question.wanted == Wanted.FINAL_VALUE:
                given, out = self._finals(question)
            else:
                carry = self._questions.carry(question.asker)
                given, out = {**self._given(question), **carry}, self._row(question, ("value",))
            count = len(out["value"])
            noise = np.zeros((count, *self._policy.policy.noise.shape), np.float32)
            calls.append(_Call({**given, "noise": noise, "explore": np.zeros(count, np.float32)}, out))
        self._run(model, calls)

    def _bound(self, model: _Model, question: Question) -> BoundRows:
        """The version of the policy, bound to the slot that a question is about."""
        key = question.asker, question.slot
        if key not in model.bound:
            if len(model.bound) >= MOST_BOUND:
                del model.bound[next(iter(model.bound))]
            rows = {name: values[question.slot] for name, values in self._questions.rows(question.asker).items()}
            stacks = self._questions.stacks(question.asker)
            model.bound[key] = bound_rows(model.backend, self._session(question), self._policy, rows, stacks)
        return model.bound[key]

    def _session(self, question: Question) -> ActingSession:
        """The acting session of the asker's lanes. It works on the asker's own arrays."""
        asker = question.asker
        if asker not in self._sessions:
            policy, count = self._policy, self._questions.rows(asker)["action"].shape[2]
            self._sessions[asker] = ActingSession(
                policy.policy,
                policy.spaces.action,
                question.first_lane + np.arange(count),
                exploration=policy.exploration,
                seed=policy.seed,
                environment_action=self._questions.environment_action(asker),
                carry=self._questions.carry(asker),
            )
        return self._sessions[asker]

    def _row(self, question: Question, names: Sequence[str]) -> Arrays:
        arrays, at = self._questions.rows(question.asker), (question.slot, question.row)
        return {name: arrays[name][at] for name in names}

    def _given(self, question: Question) -> Arrays:
        """The row fields that an answer reads."""
        stacks = self._questions.stacks(question.asker)
        return {**self._row(question, [name for name in self._policy.given if name not in stacks]), **stacks}

    def _finals(self, question: Question) -> tuple[Arrays, Arrays]:
        """The inputs for the last observations that a question is about, and where their values go."""
        arrays, at = self._questions.rows(question.asker), (question.slot, slice(question.finals))
        names = (*(name for name, _ in self._policy.spaces.obs), *self._memory)
        given = {name: arrays[f"final.{name}"][at] for name in names}
        if self._memory:
            given["first"] = np.zeros(question.finals, np.bool_)
        return given, {"value": arrays["final_value"][at]}

    @staticmethod
    def _run(model: _Model, calls: Sequence[_Call]) -> None:
        """Gather the inputs into one batch, run the policy once, and write each answer to its place."""
        if len(calls) == 1:
            model.backend.act(calls[0].inputs, calls[0].out)
            return
        inputs = {name: np.concatenate([call.inputs[name] for call in calls]) for name in calls[0].inputs}
        count = len(inputs["explore"])
        out = {name: np.empty((count, *like.shape[1:]), like.dtype) for name, like in calls[0].out.items()}
        model.backend.act(inputs, out)
        for name, values in out.items():
            begin = 0
            for call in calls:
                end = begin + len(call.out[name])
                call.out[name][...] = values[begin:end]
                begin = end
