"""PolicyNode: answers the questions of many nodes. One call of the policy answers all questions that wait.

Answers are written in place, into the rows. A batch is whatever waits, so no asker waits for a batch to fill. The node
steps no environment and does not know the algorithm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.kernels.actions import environment_array, to_environment
from penstock.kernels.noise import generate
from penstock.nodes.contract import Ports
from penstock.policies.acting import PolicySettings
from penstock.registry import load
from penstock.types import Array, Arrays, PolicyBackend, Question, Wanted

__all__ = ["PolicyNode", "PolicyNodeSettings"]


@dataclass(frozen=True)
class PolicyNodeSettings:
    """Which policy answers."""

    policy: PolicySettings
    open_limit_s: float
    """How long making the policy may take, in seconds."""


@dataclass(eq=False)
class _Model:
    """One version of the policy, ready to answer."""

    backend: PolicyBackend
    version: int


class _Place(NamedTuple):
    """Where the rows of a question lie."""

    obs: Arrays
    """field -> ``[n, ...]``."""
    out: Arrays
    """output -> ``[n, ...]``."""


class PolicyNode:
    """Answers edge ``act`` with the parameters of board ``policy``.

    From one ``refresh`` to the next an asker gets answers from one version. So each rollout is of one policy, even if
    another asker already uses a later one. At most one version per asker is held at a time.
    """

    def __init__(self, settings: PolicyNodeSettings) -> None:
        policy = self._policy = settings.policy
        self._open_limit_s = settings.open_limit_s
        self._published: Arrays = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in policy.graph.published()}
        self._fields = tuple(name for name, _ in policy.spaces.obs)
        self._outputs = ("action", *(spec.name for spec in policy.row))
        self._answering: dict[int, _Model] = {}
        """By asker."""

    def open(self, ports: Ports) -> None:
        """Make the policy."""
        self._questions = ports.questions("act")
        self._board = ports.board_reader("policy")
        with ports.busy("make the policy", self._open_limit_s):
            self._latest = self._make()
        self._models = [self._latest]

    def ready(self) -> bool:
        """True if a question is waiting."""
        return self._questions.waiting()

    def step(self) -> None:
        """Answer all waiting questions: for each version one call of the backend for rows, and one for values."""
        batches: dict[tuple[_Model, bool], list[Question]] = {}
        for question in self._questions.take():
            if question.refresh or question.asker not in self._answering:
                self._renew(question.asker)
            key = self._answering[question.asker], question.wanted == Wanted.ROW
            batches.setdefault(key, []).append(question)
        for (model, rows), questions in batches.items():
            (self._answer_rows if rows else self._answer_values)(model, questions)
            for question in questions:
                self._questions.answer(question.asker, model.version)

    def close(self) -> None:
        """Nothing is held beyond memory."""

    def _make(self) -> _Model:
        backend = self._policy.backend
        return _Model(load(backend.build)(*backend.arguments), -1)

    def _renew(self, asker: int) -> None:
        """Answer this asker with the latest published parameters from now on."""
        self._answering.pop(asker, None)
        if self._latest.version != self._board.version():
            used = self._answering.values()
            unused = next((model for model in self._models if model not in used), None)
            if unused is None:
                unused = self._make()
                self._models.append(unused)
            unused.version = self._board.read(self._published)
            unused.backend.load(self._published)
            self._latest = unused
        self._answering[asker] = self._latest

    def _answer_rows(self, model: _Model, questions: Sequence[Question]) -> None:
        """Answer questions about rows: write all outputs of ``act``."""
        settings, arrays = self._policy, self._questions.arrays
        exploration, count = settings.exploration, arrays["action"].shape[2]
        lanes = [question.first_lane + np.arange(count) for question in questions]
        noise = [generate(settings.noise, settings.seed, own, q.step) for own, q in zip(lanes, questions, strict=True)]
        explore = [exploration.scale(own, q.step) for own, q in zip(lanes, questions, strict=True)]
        places = [self._row(question, self._outputs) for question in questions]
        action = self._act(model, places, np.concatenate(noise), np.concatenate(explore))["action"]
        for index, question in enumerate(questions):
            if exploration.blind(question.step):
                own = action[index * count : (index + 1) * count]
                exploration.generate(settings.spaces.action, settings.seed, lanes[index], question.step, own)
                places[index].out["action"][...] = own
        environment = environment_array(settings.spaces.action, len(action))
        to_environment(action, settings.spaces.action, environment)
        for index, question in enumerate(questions):
            own = environment[index * count : (index + 1) * count]
            self._questions.environment_action(question.asker)[...] = own
            # The asker wrote the version that it knew. The version that answered may be later: it is written here.
            arrays["policy_version"][question.slot, question.row] = model.version

    def _answer_values(self, model: _Model, questions: Sequence[Question]) -> None:
        """Answer questions about values alone. They need no noise."""
        finals = Wanted.FINAL_VALUE
        places = [self._finals(q) if q.wanted == finals else self._row(q, ("value",)) for q in questions]
        count = sum(len(place.out["value"]) for place in places)
        noise = np.zeros((count, *self._policy.noise.shape), np.float32)
        self._act(model, places, noise, np.zeros(count, np.float32))

    def _row(self, question: Question, outputs: Sequence[str]) -> _Place:
        arrays, at = self._questions.arrays, (question.slot, question.row)
        stacks = self._questions.stacks(question.asker)
        obs = {name: stacks[name] if name in stacks else arrays[name][at] for name in self._fields}
        return _Place(obs, {name: arrays[name][at] for name in outputs})

    def _finals(self, question: Question) -> _Place:
        arrays, at = self._questions.arrays, (question.slot, slice(question.finals))
        obs = {name: arrays[f"final.{name}"][at] for name in self._fields}
        return _Place(obs, {"value": arrays["final_value"][at]})

    def _act(self, model: _Model, places: Sequence[_Place], noise: Array, explore: Array) -> Arrays:
        """Gather the observations into one batch, run the policy once, and write each answer to its place."""
        obs = {name: np.concatenate([place.obs[name] for place in places]) for name in self._fields}
        out = {name: np.empty((len(noise), *like.shape[1:]), like.dtype) for name, like in places[0].out.items()}
        model.backend.act(obs, noise, explore, out)
        for name, values in out.items():
            begin = 0
            for place in places:
                end = begin + len(place.out[name])
                place.out[name][...] = values[begin:end]
                begin = end
        return out
