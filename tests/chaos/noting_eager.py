"""The eager updater that logs what it learned from. Apart from the oracle: it imports torch, as a template does once.

Processes that step environments import the oracle, and must not import torch.
"""

from collections.abc import Mapping

import numpy as np

from penstock.updates import eager
from penstock.updates.settings import UpdaterSettings
from tests.chaos.oracle import noting


def build(settings: UpdaterSettings, arrays: Mapping[str, np.ndarray]):
    return noting(eager.build(settings, arrays), arrays["obs"], settings.spec.unit)
