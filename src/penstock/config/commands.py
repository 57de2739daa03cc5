"""The options of each command besides ``train``, as frozen dataclasses. Flags and help are derived from them."""

from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.config.fields import Value
from penstock.config.schema import HTTP_PORT, RunConfig

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

NAME_PATTERN = r"[A-Za-z0-9_.-]{1,100}"
"""Names of served policies."""
RUN_NAME_PATTERN = r"(?!latest$)(?!.*\.partial$)[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
"""Names that a user gives to runs. ``latest`` stands for any run, and ``.partial`` ends what is not finished. A name
that begins with ``-`` would be a flag of the next command."""
FORMATS = ("onnx", "ort", "safetensors", "torch")
"""What a bundle may hold."""
VERIFIED = 1000
"""Observations that ``penstock verify --against`` plays, if nothing else is said."""


def _option(default: Value, text: str, **bounds: Value) -> Any:  # noqa: ANN401  (a field stands for its value)
    return field(default=default, metadata={"help": text, **bounds})


def _checkpoint() -> Any:  # noqa: ANN401
    text = (
        "checkpoint to use: its name, its update number, best or latest; left out: the latest. best has the highest "
        "return in evaluations during the run (--eval_interval), or without these in training episodes"
    )
    return field(default=None, metadata={"help": text, "form": "the name or number of a checkpoint"})


def _run() -> Any:  # noqa: ANN401
    text = "run folder: its path, its name under --log_dir, or latest"
    return field(metadata={"help": text, "positional": True, "pattern": r"(?s).+", "form": "the folder of a run"})


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of ``penstock train``, besides the settings of the run."""

    run_name: str | None = _option(
        None,
        "name of the run, and of its folder in --log_dir; refused if there is such a run; left out: environment, "
        "algorithm and time",
        pattern=RUN_NAME_PATTERN,
        form="letters, digits, _, . and -, such as pendulum-1",
    )
    resume_if_exists: bool = _option(
        False,
        "if there is a run of this --run_name, go on with it, as penstock resume does with the same settings; a run "
        "without a checkpoint is removed and begins anew. So one command starts a run, and goes on with it",
    )


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Options of ``penstock resume``, besides the run's settings that may change."""

    run: str = _run()
    checkpoint: str | None = _checkpoint()
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class RetrainOptions:
    """Options of ``penstock retrain``."""

    run: str = _run()
    experience: str = field(
        metadata={
            "help": "folder of kept episodes: that of a policy below the folder of penstock serve --collect, or the "
            "folder episodes of a run (--keep_episodes)",
            "pattern": r"(?s).+",
            "form": "a folder",
        }
    )
    every: str | None = _option(
        None,
        "look for new episodes again after this time, such as 90s, 30m, 1h or 1d; left out: look once",
        pattern=r"(?!0+(\.0+)?[smhd])[0-9]+(\.[0-9]+)?[smhd]",
        form="a time such as 90s, 30m, 1h or 1d",
    )
    drift: float = _option(
        0.0,
        "learn only if new episodes differ at least this much from those already learned from: the largest "
        "Kolmogorov-Smirnov distance of the reward or of a number of the observation, such as 0.1; 0: whenever there "
        "is a new episode",
        min=0.0,
        max=1.0,
    )
    held_out: float = _option(
        0.2,
        "share of the episodes that nothing is learned from, and that a new version is judged by",
        min=0.01,
        max=0.5,
    )
    epochs: float = _option(10.0, "how often each step is learned from, on average", min=0.01)
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Options of ``penstock tune``, besides the settings of every run."""

    search: tuple[str, ...] | None = _option(
        None,
        "what to search, such as lr=loguniform:1e-5:1e-2 or mini_batch_size=choice:64,128,256; also uniform:LOW:HIGH "
        "and int:LOW:HIGH; for several settings, repeat the flag",
        form="NAME=KIND:VALUES",
        adds=True,
    )
    samples: int = _option(10, "number of trials", min=1)
    scheduler: Literal["random", "asha", "pbt"] = _option(
        "asha",
        "random: every trial goes on to its end; asha: weak trials are stopped early; pbt: weak trials go on as "
        "changed copies of strong ones",
    )
    searcher: Literal["random", "optuna"] = _option(
        "random",
        "how the settings of the next trial are chosen. random: at random; optuna: by Optuna, from the returns of the "
        "trials before (pip install 'penstock[optuna]')",
    )
    at_once: int | None = _option(None, "most trials that run at once; left out: as many as there are cores", min=1)
    name: str = _option("tune", "folder of the trials, in --log_dir", pattern=r"[\w.-]+", form="a name")
    address: str | None = _option(
        None, "the Ray cluster that runs the trials", pattern=r"\S+", form="auto or host:port"
    )


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Options of ``penstock eval``."""

    run: str = _run()
    episodes: int = _option(RunConfig.eval_episodes, "greedy episodes to play", min=1)
    checkpoint: str | None = _checkpoint()
    seed: int | None = _option(None, "seed of the episodes; left out: the run's seed", min=0, max=2**63 - 1)
    keep: str | None = _option(
        None, "keep the episodes in this folder, one file for each: for retrain, for --demonstrations", form="a folder"
    )
    num_workers: int | None = _option(
        None,
        "most processes that play; episodes depend on it only where environments reset themselves (EnvPool, "
        "PettingZoo); left out: as many as the run has environment processes, but no more than one for each core of "
        "this machine",
        min=1,
    )
    json: bool = _option(False, "print the result as one JSON object")
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """Options of ``penstock watch``."""

    run: str = _run()
    out: str | None = _option(
        None,
        "animated picture to write; left out: episodes.gif in the run folder",
        pattern=r"(?s).+\.gif",
        form="a file that ends in .gif",
    )
    episodes: int = _option(1, "greedy episodes to show, one after the other", min=1, max=1000)
    seconds: float = _option(
        30.0, "longest time that the picture lasts; an episode that is longer is cut", min=0.1, max=300.0
    )
    window: bool = _option(False, "let the environment open its own window, on this machine, and write no picture")
    checkpoint: str | None = _checkpoint()
    seed: int | None = _option(None, "seed of the episodes; left out: the run's seed", min=0, max=2**63 - 1)
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of ``penstock compare``."""

    sides: tuple[str, ...] = field(
        metadata={
            "help": "two or more; each is a run folder, its name under --log_dir, latest, several of them separated by "
            "commas, or a folder of runs; the runs of one side are one algorithm with several seeds",
            "positional": True,
            "pattern": r"(?s).+",
            "form": "runs",
        }
    )
    json: bool = _option(False, "print the comparison as one JSON object")
    plot: str | None = _option(
        None,
        "also draw the comparison into this file",
        pattern=r"(?s).+\.(png|svg|pdf)",
        form="a file that ends in .png, .svg or .pdf",
    )
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """Options of ``penstock metrics``."""

    run: str = _run()
    metric: str | None = field(
        default=None,
        metadata={
            "help": "one metric, such as loss/policy; left out: all (docs/metrics.md explains them)",
            "positional": True,
            "pattern": r"\S+",
            "form": "the name of a metric",
        },
    )
    kind: Literal["last", "mean", "sum", "min", "max", "quantile"] | None = _option(
        None, "the number to print for all lines of a metric; left out: last, mean, min and max"
    )
    q: float | None = _option(
        None, "with --kind quantile: 0.5 for the median, 0.9 for the 90th percentile", min=0, max=1
    )
    last: int | None = _option(None, "only this many of the latest lines of each metric; left out: all", min=1)
    level: Literal["framework", "algorithm", "task"] | None = _option(
        None,
        "only metrics of this level. framework: what the machine and the nodes do; algorithm: what was learned; task: "
        "how well it goes",
    )
    json: bool = _option(False, "print the numbers as one JSON object")
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """Options of ``penstock models``. Without any, it lists the versions."""

    run: str = _run()
    pin: str | None = _option(None, "keep this version, whatever the rules of retention say", form="a version")
    unpin: str | None = _option(None, "leave this version to the rules of retention again", form="a version")
    clone: str | None = _option(
        None, "make a new run of this version, beside the run; penstock resume continues it", form="a version"
    )
    prune: int | None = _option(
        None,
        "remove all versions but the latest ones (this many), the best, pinned ones, and those of --keep_every",
        min=1,
    )
    keep_every: int = _option(0, "with --prune: also keep versions whose update is a multiple of this", min=0)
    json: bool = _option(False, "print the versions and the lineage as one JSON object")
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of ``penstock export``."""

    run: str = _run()
    out: str = _option(
        "policy",
        "folder to write; a bundle there is replaced, anything else is not",
        pattern=r"(?s).+",
        form="a folder",
    )
    checkpoint: str | None = _checkpoint()
    format: tuple[str, ...] = _option(
        ("onnx",),
        "what the bundle holds besides the graph in onnx: ort, the graph that acts for ONNX Runtime on phones; "
        "safetensors, the parameters by name; torch, a program of torch.export",
        choices=FORMATS,
        adds=True,
    )
    quantize: str | None = _option(
        None, "also make a graph in this precision, which then is the one that acts", choices=("int8", "fp16")
    )
    noise: bool = _option(False, "the graph also takes noise and explore, so that its actions can explore")
    observations: int = _option(
        256, "observations to play for the bundle's sample; int8 learns its ranges from them", min=1, max=100_000
    )
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Options of ``penstock verify``."""

    bundle: str = field(
        metadata={"help": "folder of the bundle", "positional": True, "pattern": r"(?s).+", "form": "a folder"}
    )
    against: str | None = _option(
        None,
        "run to compare with, on fresh observations: its path, its name under --log_dir, or latest; left out: the "
        "bundle's own sample",
        form="the folder of a run",
    )
    checkpoint: str | None = _option(
        None,
        "checkpoint of that run; left out: the one that the bundle was exported from",
        form="the name or number of a checkpoint",
    )
    observations: int | None = _option(
        None, f"observations to play, with --against; left out: {VERIFIED}", min=1, max=1_000_000
    )
    seed: int | None = _option(
        None,
        "seed of the played episodes, with --against; left out: one that exports do not use",
        min=0,
        max=2**63 - 1,
    )
    agreement: float = _option(
        1.0, "fp32: least share of observations with the same discrete choices", min=0.0, max=1.0
    )
    error: float = _option(1e-4, "fp32: largest error of a number in an action, as a share of its range", min=0.0)
    quantized_agreement: float = _option(0.99, "int8 and fp16: the same share", min=0.0, max=1.0)
    quantized_error: float = _option(0.02, "int8 and fp16: the same error", min=0.0)
    json: bool = _option(False, "print the result as one JSON object")
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """Options of ``penstock trace``."""

    run: str = _run()
    out: str | None = _option(
        None, "file to write; left out: trace.json in the run folder", pattern=r"(?s).+", form="a file"
    )
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """Options of ``penstock plot``."""

    run: str | None = field(
        default=None,
        metadata={
            "help": "run to draw: its path, its name under --log_dir, or latest; left out: all runs of --log_dir",
            "positional": True,
            "pattern": r"(?s).+",
            "form": "the folder of a run",
        },
    )
    log_dir: str = _option(RunConfig.log_dir, "one run folder, or a folder of runs to compare", form="a folder")
    save_fig: bool = _option(True, "write curves.png into that folder; False opens a window instead")
    smooth: float = _option(
        0.03,
        "width of the moving average of a bold line, as a share of the curve; pale lines show the measured values",
        min=0.0,
        max=0.5,
    )


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of ``penstock serve``."""

    policies: tuple[str, ...] = field(
        metadata={
            "help": "what to serve: a run folder, its name under --log_dir, or latest; or the folder of a bundle. "
            "Several policies are written NAME=RUN NAME=BUNDLE ...; the first answers clients that name none",
            "positional": True,
            "pattern": r"(?s).+",
            "form": "the folder of a run or of a bundle",
        }
    )
    checkpoint: str | None = _checkpoint()
    follow: bool = _option(
        False, "go on with each newer checkpoint of the run; of a bundle, with each newer one in its folder"
    )
    canary: float | None = _option(
        None,
        "with --follow: a newer version answers only this share of new sessions, until it is promoted or rolled back "
        "(--admin_token_file)",
        min=0.0001,
        max=1.0,
    )
    name: str = _option(
        "policy",
        "name for clients of a policy that is written without NAME=",
        pattern=NAME_PATTERN,
        form="letters, digits, _, . and -",
    )
    host: str = _option("127.0.0.1", "address to listen at; 0.0.0.0 for every address of this machine")
    port: int = _option(HTTP_PORT, "port for HTTP; 0 for a free one", min=0, max=65535)
    tcp_port: int | None = _option(None, "port for Gamecore over TCP; 0 for a free one", min=0, max=65535)
    grpc_port: int | None = _option(None, "port for the Open Inference Protocol over gRPC", min=0, max=65535)
    workers: int = _option(
        0, "processes that run the policy; 0: the process that owns the sockets runs it, best for small ones", min=0
    )
    balance: Literal["shortest", "round_robin", "sticky"] = _option(
        "shortest",
        "with --workers: which worker answers a batch; shortest: the one with the fewest rows to answer; round_robin: "
        "one after the other; sticky: each session stays with one worker, so a batch is cut into one for each",
    )
    max_batch: int = _option(64, "rows that the policy answers in one call", min=1, max=65536)
    max_wait: float = _option(
        0.0,
        "seconds that a batch waits for sessions that have not asked yet; 0: it takes what has arrived",
        min=0.0,
        max=10.0,
    )
    quantized_agreement: float = _option(
        VerifyOptions.quantized_agreement,
        "bundle in int8 or fp16: least share of its sample with the same discrete choices, or it is not served",
        min=0.0,
        max=1.0,
    )
    quantized_error: float = _option(
        VerifyOptions.quantized_error,
        "the same: largest error of a number in an action, as a share of its range",
        min=0.0,
    )
    codec: Literal["json", "raw"] = _option("json", "bodies of Gamecore requests; raw is little-endian float32")
    agent: str | None = _option(
        None,
        "the agent through which Gamecore clients play; off: they ask the policy itself; left out: that of the run, "
        "and a bundle whose agent changes anything is refused",
        pattern=r".+",
        form="module:Agent or off",
    )
    collect: str | None = _option(
        None,
        "keep the episodes of Gamecore sessions, with the rewards that clients send, in files of this folder; "
        "penstock retrain learns from them",
        form="a folder",
    )
    collect_bytes: int = _option(
        1_000_000_000, "with --collect: bytes of files to keep of each policy; the oldest are removed", min=1
    )
    explore: float = _option(
        0.0,
        "with --collect: share of ticks that are answered by a uniformly random action, so that the episodes also "
        "show what the policy would not do",
        min=0.0,
        max=1.0,
    )
    token_file: str | None = _option(None, "file of accepted tokens, one a line; left out: none is needed")
    admin_token_file: str | None = _option(
        None,
        "file of the tokens with which a canary is promoted or rolled back, one a line; left out: nobody may",
        form="a file",
    )
    allow_anyone: bool = _option(False, "listen beyond this machine without tokens")
    tls_cert: str | None = _option(None, "certificate chain for TLS, in PEM", form="a file")
    tls_key: str | None = _option(None, "private key of the certificate, in PEM", form="a file")
    access_log: str | None = _option(None, "file for one line of JSON a request; - for standard output", form="a file")
    max_body: int = _option(8 << 20, "bytes of one request's body", min=64, max=1 << 30)
    max_sessions: int = _option(1024, "sessions that live at once", min=1, max=1_000_000)
    max_queue: int = _option(4096, "rows that wait for an answer; more are refused with 503", min=1)
    max_connections: int = _option(4096, "open connections of HTTP and TCP", min=1)
    max_seconds: float = _option(30.0, "seconds after which a request without an answer is refused", min=0.1)
    idle_seconds: float = _option(300.0, "seconds without a request after which a session ends", min=0.1)
    grace_seconds: float = _option(10.0, "seconds to answer accepted requests after SIGTERM", min=0.0)
    log_dir: str = _option(RunConfig.log_dir, "folder that holds the run folders", form="a folder")


@dataclass(frozen=True, kw_only=True)
class BenchServeOptions:
    """Options of ``penstock bench-serve``."""

    url: str = field(
        metadata={
            "help": "where penstock serve listens for HTTP",
            "positional": True,
            "pattern": r"https?://.+",
            "form": "http://HOST:PORT or https://HOST:PORT",
        }
    )
    policy: str = _option("policy", "name of the policy on that server", pattern=r".+", form="a name")
    clients: int = _option(64, "sessions that tick at once, each on a connection of its own", min=1, max=10_000)
    seconds: float = _option(10.0, "how long they tick", min=0.1)
    tcp_port: int | None = _option(None, "tick over TCP to this port; left out: over HTTP", min=1, max=65535)
    codec: Literal["json", "raw"] = _option("json", "the server's codec")
    token_file: str | None = _option(None, "file whose first line is the token", form="a file")
    ca_file: str | None = _option(
        None,
        "with https: certificates (PEM), one of which must have signed the server's; left out: those that this machine "
        "trusts",
        form="a file",
    )
