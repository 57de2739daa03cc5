"""Options of serve, and of bench-serve, which measures a server. The files that they name are read elsewhere."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.config.commands.bundles import VerifyOptions
from penstock.config.commands.option import checkpoint_option, log_dir_option, option
from penstock.config.settings.games import HTTP_PORT

__all__ = ["NAME_PATTERN", "BenchServeOptions", "ServeOptions"]

NAME_PATTERN = r"[A-Za-z0-9_.-]{1,100}"
"""Names of served policies."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of ``penstock serve``."""

    policies: tuple[str, ...] = field(
        metadata={
            "help": "what to serve: a run folder, its name under --log_dir, or latest; or a bundle, the folder that "
            "penstock export writes. Several policies are written NAME=RUN NAME=BUNDLE ...; the first answers clients "
            "that name none",
            "positional": True,
            "pattern": r"(?s).+",
            "form": "the folder of a run or of a bundle",
        }
    )
    checkpoint: str | None = checkpoint_option()
    follow: bool = option(
        False, "go on with each newer checkpoint of the run; of a bundle, with each newer one in its folder"
    )
    canary: float | None = option(
        None,
        "with --follow: a newer version answers only this share of new sessions, until it is promoted or rolled back "
        "(--admin_token_file)",
        min=0.0001,
        max=1.0,
    )
    name: str = option(
        "policy",
        "name for clients of a policy that is written without NAME=",
        pattern=NAME_PATTERN,
        form="letters, digits, _, . and -",
    )
    host: str = option("127.0.0.1", "address to listen at; 0.0.0.0 for every address of this machine")
    port: int = option(HTTP_PORT, "port for HTTP; 0 for a free one", min=0, max=65535)
    tcp_port: int | None = option(
        None, "port for Gamecore, the protocol of games, over TCP; 0 for a free one", min=0, max=65535
    )
    grpc_port: int | None = option(None, "port for the Open Inference Protocol over gRPC", min=0, max=65535)
    workers: int = option(
        0, "processes that run the policy; 0: the process that owns the sockets runs it, best for small ones", min=0
    )
    balance: Literal["shortest", "round_robin", "sticky"] = option(
        "shortest",
        "with --workers: which worker answers a batch; shortest: the one with the fewest rows to answer; round_robin: "
        "one after the other; sticky: each session stays with one worker, so a batch is cut into one for each",
    )
    max_batch: int = option(64, "rows that the policy answers in one call", min=1, max=65536)
    max_wait: float = option(
        0.0,
        "seconds that a batch waits for sessions that have not asked yet; 0: it takes what has arrived",
        min=0.0,
        max=10.0,
    )
    pad_batches: tuple[int, ...] | Literal["none", "powers"] = option(
        "none",
        "sizes to which batches are padded, for a policy that makes something anew for each size; powers: powers of "
        "two; or numbers of rows, such as 8,64: a batch that is larger than all of them is padded to a multiple of the "
        "largest. Nobody gets the answers of padding",
        min=1,
        max=65536,
    )
    quantized_agreement: float = option(
        VerifyOptions.quantized_agreement,
        "bundle in int8 or fp16: least share of its sample with the same discrete choices, or it is not served",
        min=0.0,
        max=1.0,
    )
    quantized_error: float = option(
        VerifyOptions.quantized_error,
        "the same: largest error of a number in an action, as a share of its range",
        min=0.0,
    )
    codec: Literal["json", "raw"] = option("json", "bodies of Gamecore requests; raw is little-endian float32")
    agent: str | None = option(
        None,
        "the agent through which Gamecore clients play; off: they ask the policy itself; left out: that of the run, "
        "and a bundle whose agent changes anything is refused",
        pattern=r".+",
        form="module:Agent or off",
    )
    collect: str | None = option(
        None,
        "keep the episodes of Gamecore sessions, with the rewards that clients send, in files of this folder; "
        "penstock retrain learns from them",
        form="a folder",
    )
    collect_bytes: int = option(
        1_000_000_000, "with --collect: bytes of files to keep of each policy; the oldest are removed", min=1
    )
    explore: float = option(
        0.0,
        "with --collect: share of ticks that are answered by a uniformly random action, so that the episodes also "
        "show what the policy would not do",
        min=0.0,
        max=1.0,
    )
    token_file: str | None = option(None, "file of accepted tokens, one a line; left out: none is needed")
    admin_token_file: str | None = option(
        None,
        "file of the tokens with which a canary is promoted or rolled back, one a line; left out: nobody may",
        form="a file",
    )
    allow_anyone: bool = option(False, "listen beyond this machine without tokens")
    tls_cert: str | None = option(None, "certificate chain for TLS, in PEM", form="a file")
    tls_key: str | None = option(None, "private key of the certificate, in PEM", form="a file")
    access_log: str | None = option(None, "file for one line of JSON a request; - for standard output", form="a file")
    max_body: int = option(8 << 20, "bytes of one request's body", min=64, max=1 << 30)
    max_sessions: int = option(1024, "sessions (games or agents that play) at once", min=1, max=1_000_000)
    max_queue: int = option(4096, "rows that wait for an answer; more are refused with 503", min=1)
    max_connections: int = option(4096, "open connections of HTTP and TCP", min=1)
    max_seconds: float = option(30.0, "seconds after which a request without an answer is refused", min=0.1)
    idle_seconds: float = option(300.0, "seconds without a request after which a session ends", min=0.1)
    grace_seconds: float = option(10.0, "seconds to answer accepted requests after SIGTERM", min=0.0)
    log_dir: str = log_dir_option()


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
    policy: str = option("policy", "name of the policy on that server", pattern=r".+", form="a name")
    clients: int = option(64, "sessions that tick at once, each on a connection of its own", min=1, max=10_000)
    seconds: float = option(10.0, "how long they tick", min=0.1)
    tcp_port: int | None = option(None, "tick over TCP to this port; left out: over HTTP", min=1, max=65535)
    codec: Literal["json", "raw"] = option("json", "the server's codec")
    token_file: str | None = option(None, "file whose first line is the token", form="a file")
    ca_file: str | None = option(
        None,
        "with https: certificates (PEM), one of which must have signed the server's; left out: those that this machine "
        "trusts",
        form="a file",
    )
