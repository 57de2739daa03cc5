"""The options of each command, as frozen dataclasses. Flags and help are derived from them.

``train``, ``resume`` and ``tune`` also take settings of runs, which stand in ``config/settings/``.
"""

from penstock.config.commands.bundles import FORMATS, VERIFIED, ExportOptions, VerifyOptions
from penstock.config.commands.projects import NewOptions
from penstock.config.commands.runs import (
    CompareOptions,
    EvalOptions,
    MetricsOptions,
    ModelsOptions,
    PlotOptions,
    TraceOptions,
    WatchOptions,
)
from penstock.config.commands.serving import NAME_PATTERN, BenchServeOptions, ServeOptions
from penstock.config.commands.training import ResumeOptions, RetrainOptions, TrainOptions, TuneOptions

__all__ = [
    "FORMATS",
    "NAME_PATTERN",
    "VERIFIED",
    "BenchServeOptions",
    "CompareOptions",
    "EvalOptions",
    "ExportOptions",
    "MetricsOptions",
    "ModelsOptions",
    "NewOptions",
    "PlotOptions",
    "ResumeOptions",
    "RetrainOptions",
    "ServeOptions",
    "TraceOptions",
    "TrainOptions",
    "TuneOptions",
    "VerifyOptions",
    "WatchOptions",
]
