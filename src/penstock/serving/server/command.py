"""``penstock serve`` and ``penstock bench-serve``. Imports the packages of the extra ``serve`` on use."""

import importlib.util
import ipaddress
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.clients.session import trust
from penstock.clients.wire import Address
from penstock.config.commands import NAME_PATTERN, BenchServeOptions, ServeOptions
from penstock.errors import ConfigError, RunFolderError
from penstock.paths import expanded
from penstock.registry import load
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.bundle import is_bundle, read_bundle
from penstock.serving.server.admission.tokens import Tokens
from penstock.serving.server.policy.agents import agents_of
from penstock.serving.server.policy.source import Source

if TYPE_CHECKING:
    from penstock.serving.bench.gamecore import Load
    from penstock.serving.bench.load import Measured
    from penstock.serving.server.assembly import Assembly

__all__ = ["bench", "is_loopback", "named", "serve"]

_PACKAGES = ("httptools", "orjson", "prometheus_client", "uvloop")


def serve(options: ServeOptions, loader: str, say: Callable[[str], object]) -> None:
    """Serve policies until SIGTERM or Ctrl-C.

    Args:
        options: of the command line.
        loader: ``module:function`` that loads a policy.
        say: is told where the server listens, in one line.

    Raises:
        UsageError: an option, a run, a bundle or a file cannot be used.
        ResourceError: a port cannot be used.
    """
    _check_installed((*_PACKAGES, "grpc") if options.grpc_port is not None else _PACKAGES)
    _check_together(options)
    sources = {name: _source(place, options, loader) for name, place in named(options.policies, options.name).items()}
    agents = agents_of(sources, options)
    assembly: type[Assembly] = load("penstock.serving.server.assembly:Assembly")
    assembly(options, sources, agents).run(say)


def named(policies: Sequence[str], name: str) -> dict[str, str]:
    """The runs and bundles of a command line, by the names of the policies, in their order.

    Args:
        policies: ``NAME=PLACE``, or ``PLACE`` alone. ``./a=b`` is a place, because no name has a slash.
        name: of a policy without one.

    Raises:
        ConfigError: two have the same name, or none needs ``name``.
    """
    found: dict[str, str] = {}
    is_used = False
    for given in policies:
        before, equals, after = given.partition("=")
        if equals and after and before and "/" not in before and re.fullmatch(NAME_PATTERN, before) is None:
            raise ConfigError(
                f"{before[:80]!r} is no name of a policy: it holds letters, digits, _, . and -, 100 at most; a folder "
                f"whose name has a = is written ./{given}"
            )
        has_name = bool(equals and after) and re.fullmatch(NAME_PATTERN, before) is not None
        own, place = (before, after) if has_name else (name, given)
        is_used = is_used or not has_name
        if own in found:
            raise ConfigError(f"two policies have the name {own}: {found[own]} and {place}; write NAME={place}")
        found[own] = place
    if not is_used and name != ServeOptions.name:
        raise ConfigError(f"--name {name} is for a policy without a name, and each has one; leave it out")
    return found


def _source(place: str, options: ServeOptions, loader: str) -> Source:
    """Where a policy comes from: the folder of a bundle, or a run as `RunFolder.find` finds it."""
    folder = expanded(place)
    if is_bundle(folder):
        return Source(loader, str(folder), None, _version_of_bundle(folder, options))
    try:
        folder = RunFolder.find(place, options.log_dir).path
    except RunFolderError as error:
        raise RunFolderError(f"{error}; and {place} is no bundle, the folder that penstock export writes") from None
    return Source.of_checkpoint(loader, str(folder), find_checkpoint(folder, options.checkpoint).name)


def bench(options: BenchServeOptions) -> tuple[str, bool]:
    """Measure a server.

    Returns:
        What was found, in one line; and whether every request was answered.

    Raises:
        UsageError: the URL, the policy's name or the token cannot be used.
        ResourceError: the server cannot be reached, or answers no tick.
    """
    _check_installed(_PACKAGES)
    token = "" if options.token_file is None else Tokens.read(options.token_file, "--token_file").first
    load_type: type[Load] = load("penstock.serving.bench.gamecore:Load")
    tls = trust(Address.read(options.url), options.ca_file)
    found: Measured = load("penstock.serving.bench.gamecore:measure")(
        load_type(
            options.url, options.policy, options.clients, options.seconds, options.tcp_port, options.codec, token, tls
        )
    )
    way = "HTTP" if options.tcp_port is None else "TCP"
    return f"{options.clients} clients over {way} for {found.seconds:.1f} s: {found.line()}", not found.failures


def _check_installed(packages: tuple[str, ...]) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"penstock serve needs {missing[0]}; type: pip install 'penstock[serve]'")


def _version_of_bundle(folder: Path, options: ServeOptions) -> int:
    """The update of the checkpoint that the bundle was exported from."""
    if options.checkpoint is not None:
        raise ConfigError(f"--checkpoint is for runs, and {folder} is a bundle, which holds one checkpoint only")
    return int(read_bundle(folder).facts.run["update"])


def _check_together(options: ServeOptions) -> None:
    if options.canary is not None and not options.follow:
        raise ConfigError(f"--canary {options.canary:g} is for newer checkpoints; give --follow as well")
    if options.follow and options.canary is None and options.checkpoint not in {None, "latest"}:
        raise ConfigError(
            f"--follow serves the newest checkpoint; leave out --checkpoint {options.checkpoint}, or give --canary"
        )
    ports = {"--port": options.port, "--tcp_port": options.tcp_port, "--grpc_port": options.grpc_port}
    for port in ports.values():
        same = [other for other, taken in ports.items() if port and taken == port]
        if len(same) > 1:
            raise ConfigError(f"{same[0]} and {same[1]} are both {port}; give each a port of its own")
    if (options.tls_cert is None) != (options.tls_key is None):
        raise ConfigError("--tls_cert and --tls_key belong together; give both, or neither")
    if options.balance != ServeOptions.balance and options.workers < 2:
        raise ConfigError(f"--balance {options.balance} is for several worker processes; give --workers 2 or more")
    if options.collect is not None and options.codec == "raw":
        raise ConfigError("--collect needs --codec json: raw bodies have no place for rewards")
    if options.collect is None and (options.explore or options.collect_bytes != ServeOptions.collect_bytes):
        flag = "--explore" if options.explore else "--collect_bytes"
        raise ConfigError(f"{flag} is for episodes that are kept; give --collect FOLDER as well")
    if not isinstance(options.pad_batches, str) and max(options.pad_batches) > options.max_batch:
        raise ConfigError(
            f"--pad_batches has the size {max(options.pad_batches)}, which no batch needs: it holds --max_batch "
            f"{options.max_batch} rows at most; leave that size out, or give a larger --max_batch"
        )
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
