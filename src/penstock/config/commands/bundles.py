"""Options of the commands that make and check bundles: export and verify. How a bundle is served is not here."""

from dataclasses import dataclass, field

from penstock.config.commands.option import checkpoint_option, log_dir_option, option, run_option

__all__ = ["FORMATS", "VERIFIED", "ExportOptions", "VerifyOptions"]

FORMATS = ("onnx", "ort", "safetensors", "torch")
"""What a bundle may hold."""
VERIFIED = 1000
"""Observations that ``penstock verify --against`` plays, if nothing else is said."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of ``penstock export``."""

    run: str = run_option()
    out: str = option(
        "policy",
        "folder to write; an earlier bundle there is replaced, anything else is not",
        pattern=r"(?s).+",
        form="a folder",
    )
    checkpoint: str | None = checkpoint_option()
    format: tuple[str, ...] = option(
        ("onnx",),
        "what the folder holds besides the graph in onnx: ort, the graph that acts for ONNX Runtime on phones; "
        "safetensors, the parameters by name; torch, a program of torch.export",
        choices=FORMATS,
        adds=True,
    )
    quantize: str | None = option(
        None, "also make a graph in this precision, which then is the one that acts", choices=("int8", "fp16")
    )
    noise: bool = option(
        False,
        "the graph also takes the inputs noise and explore, so that its actions can be sampled as in training; False: "
        "actions are greedy",
    )
    observations: int = option(
        256, "observations to play for the bundle's sample; int8 learns its ranges from them", min=1, max=100_000
    )
    log_dir: str = log_dir_option()


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Options of ``penstock verify``."""

    bundle: str = field(
        metadata={
            "help": "folder of a bundle: an exported policy, as penstock export writes it",
            "positional": True,
            "pattern": r"(?s).+",
            "form": "a folder",
        }
    )
    against: str | None = option(
        None,
        "run to compare with, on fresh observations: its path, its name under --log_dir, or latest; left out: the "
        "bundle's own sample",
        form="the folder of a run",
    )
    checkpoint: str | None = option(
        None,
        "checkpoint of that run; left out: the one that the bundle was exported from",
        form="the name or number of a checkpoint",
    )
    observations: int | None = option(
        None, f"observations to play, with --against; left out: {VERIFIED}", min=1, max=1_000_000
    )
    seed: int | None = option(
        None,
        "seed of the played episodes, with --against; left out: one that exports do not use",
        min=0,
        max=2**63 - 1,
    )
    agreement: float = option(1.0, "fp32: least share of observations with the same discrete choices", min=0.0, max=1.0)
    error: float = option(1e-4, "fp32: largest error of a number in an action, as a share of its range", min=0.0)
    quantized_agreement: float = option(0.99, "int8 and fp16: the same share", min=0.0, max=1.0)
    quantized_error: float = option(0.02, "int8 and fp16: the same error", min=0.0)
    json: bool = option(False, "print the result as one JSON object")
    log_dir: str = log_dir_option()
