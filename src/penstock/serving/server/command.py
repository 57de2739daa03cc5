"""``penstock serve`` and ``penstock bench-serve``. Imports the packages of the extra ``serve`` on use."""

import importlib.util
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.commands import BenchServeOptions, ServeOptions
from penstock.errors import ConfigError
from penstock.experiments.best import find_checkpoint
from penstock.registry import load
from penstock.serving.bundle import is_bundle, read_bundle
from penstock.serving.server.source import Source
from penstock.serving.server.tokens import Tokens

if TYPE_CHECKING:
    from penstock.serving.server.assembly import Assembly
    from penstock.serving.server.bench import Load, Measured

__all__ = ["bench", "is_loopback", "serve"]

_PACKAGES = ("httptools", "orjson", "prometheus_client", "uvloop")


def serve(options: ServeOptions, folder: Path, loader: str, say: Callable[[str], object]) -> None:
    """Serve a policy until SIGTERM or Ctrl-C.

    Args:
        options: of the command line.
        folder: of the run or of the bundle.
        loader: ``module:function`` that loads its policy.
        say: is told where the server listens, in one line.

    Raises:
        UsageError: an option, the run, the bundle or a file cannot be used.
        ResourceError: a port cannot be used.
    """
    _check_installed((*_PACKAGES, "grpc") if options.grpc_port is not None else _PACKAGES)
    _check_together(options)
    if is_bundle(folder):
        source = Source(loader, str(folder), None, _version_of_bundle(folder, options))
    else:
        source = Source.of_checkpoint(loader, str(folder), find_checkpoint(folder, options.checkpoint).name)
    assembly: type[Assembly] = load("penstock.serving.server.assembly:Assembly")
    assembly(options, source).run(say)


def bench(options: BenchServeOptions) -> str:
    """Measure a server, and say what was found in one line.

    Raises:
        UsageError: the URL, the policy's name or the token cannot be used.
        ResourceError: the server cannot be reached.
    """
    _check_installed(_PACKAGES)
    token = "" if options.token_file is None else Tokens.read(options.token_file).first
    load_type: type[Load] = load("penstock.serving.server.bench:Load")
    found: Measured = load("penstock.serving.server.bench:measure")(
        load_type(options.url, options.policy, options.clients, options.seconds, options.tcp_port, options.codec, token)
    )
    way = "HTTP" if options.tcp_port is None else "TCP"
    return f"{options.clients} clients over {way} for {found.seconds:.1f} s: {found.line()}"


def _check_installed(packages: tuple[str, ...]) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"penstock serve needs {missing[0]}; type: pip install 'penstock[serve]'")


def _version_of_bundle(folder: Path, options: ServeOptions) -> int:
    """The update of the checkpoint that the bundle was exported from."""
    for name, given in (("checkpoint", options.checkpoint is not None), ("follow", options.follow)):
        if given:
            raise ConfigError(f"--{name} is for runs, and {folder} is a bundle, which holds one checkpoint only")
    return int(read_bundle(folder).facts.run["update"])


def _check_together(options: ServeOptions) -> None:
    if options.follow and options.checkpoint not in {None, "latest"}:
        raise ConfigError(f"--follow serves the newest checkpoint; leave out --checkpoint {options.checkpoint}")
    if (options.tls_cert is None) != (options.tls_key is None):
        raise ConfigError("--tls_cert and --tls_key belong together; give both, or neither")
    if options.max_queue < options.max_batch:
        raise ConfigError(
            f"--max_queue {options.max_queue} is less than --max_batch {options.max_batch}; give at least as much"
        )
    if options.token_file is None and not options.allow_anyone and not is_loopback(options.host):
        raise ConfigError(
            f"--host {options.host} can be reached from other machines; give --token_file FILE, or --allow_anyone if "
            "something else decides who may ask"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
