"""What users call on a config or on a run: `train`, `resume`, `evaluate`, `load_policy`, `draw`.

READ ``training.py`` FIRST: config -> plan -> program -> runtime -> result. The other files here are what it calls, and
what may be done with a run afterwards. Nothing here steps an environment or takes a gradient step.
"""

from penstock.run.evaluating import evaluate
from penstock.run.loading import load_policy
from penstock.run.program import draw
from penstock.run.result import Result
from penstock.run.resuming import resume
from penstock.run.training import train

__all__ = ["Result", "draw", "evaluate", "load_policy", "resume", "train"]
