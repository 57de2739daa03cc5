"""A bundle: one exported policy as a folder. It needs nothing of its run, and can be used without penstock."""

from penstock.serving.bundle.contents import FORMAT, GRAPHS, SAMPLE, Facts, Port
from penstock.serving.bundle.policy import BundlePolicy, GraphRunner
from penstock.serving.bundle.reading import Bundle, DamagedBundleError, is_bundle, read_bundle
from penstock.serving.bundle.sample import Sample, pack_sample
from penstock.serving.bundle.writing import write_bundle

__all__ = [
    "FORMAT",
    "GRAPHS",
    "SAMPLE",
    "Bundle",
    "BundlePolicy",
    "DamagedBundleError",
    "Facts",
    "GraphRunner",
    "Port",
    "Sample",
    "is_bundle",
    "pack_sample",
    "read_bundle",
    "write_bundle",
]
