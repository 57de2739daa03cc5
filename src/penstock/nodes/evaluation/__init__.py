"""Nodes of evaluations: the evaluator during a run; the judge and its players after it."""

from penstock.nodes.evaluation.episodes import PlaySettings
from penstock.nodes.evaluation.evaluator import EvaluatorNode, EvaluatorSettings
from penstock.nodes.evaluation.judge import JudgeNode, JudgeSettings
from penstock.nodes.evaluation.player import PlayerNode, PlayerSettings
from penstock.nodes.evaluation.recording import INPUT, OUTPUT, record
from penstock.nodes.evaluation.tickets import TICKET, Ending, answer_specs, found_specs

__all__ = [
    "INPUT",
    "OUTPUT",
    "TICKET",
    "Ending",
    "EvaluatorNode",
    "EvaluatorSettings",
    "JudgeNode",
    "JudgeSettings",
    "PlaySettings",
    "PlayerNode",
    "PlayerSettings",
    "answer_specs",
    "found_specs",
    "record",
]
