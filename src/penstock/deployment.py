"""From a trained run to production: exports its policy as a bundle, and verifies a bundle.

Plays the run's environment for observations, in a process of its own. Serves nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.numpy

from penstock import __version__
from penstock.config.commands import FORMATS, VERIFIED, ExportOptions
from penstock.config.values import count_of
from penstock.envs.games import agent_class, agent_name
from penstock.envs.given import given_of
from penstock.errors import BundleError, ConfigError, DeviceError, EnvError
from penstock.games.agent import hooks_of
from penstock.inference.onnx import CPU
from penstock.inference.onnx import export as onnx_bytes
from penstock.nodes.contract import WORK_LIMIT_S
from penstock.nodes.evaluation import INPUT, OUTPUT, record
from penstock.paths import expanded
from penstock.planning.backends import backend_of
from penstock.policies import PolicyGraph
from penstock.policies.critic_fields import Deployed, deployed
from penstock.processes.errand import Errand, call_apart
from penstock.processes.starts import Processes
from penstock.registry import RUNTIMES, load
from penstock.saved_runs.checkpoints import list_checkpoints
from penstock.saved_runs.run_folder import RunFolder
from penstock.serving.bundle import (
    GRAPHS,
    SAMPLE,
    Bundle,
    BundlePolicy,
    Facts,
    Sample,
    pack_sample,
    read_bundle,
    write_bundle,
)
from penstock.serving.bundle.contents import MOBILE, PARAMETERS, PROGRAM, Port, ports_of
from penstock.serving.bundle.difference import difference
from penstock.serving.bundle.sample import sample_of
from penstock.serving.bundle.writing import check_place
from penstock.serving.mobile import ort_format
from penstock.serving.quantize import PRECISIONS, Precision, quantized
from penstock.serving.verification import EXACT, QUANTIZED, Limits, Report, Verification, compared, latencies
from penstock.trained import Trained, open_trained, whole_policy_of, with_opponents
from penstock.types import Arrays, EnvFactory, EnvRecipe

__all__ = ["export", "verify"]

LANES = 8
"""Environments that are played side by side for observations, so that not all are of one episode."""
PLAY_LIMIT_S = 600.0
"""Longest time to play for observations."""


def export(
    run: Path | str,
    out: Path | str,
    *,
    checkpoint: str | int | None = None,
    format: Sequence[str] | str = ExportOptions.format,  # noqa: A002 - as the flag
    quantize: Precision | None = None,
    noise: bool = False,
    observations: int = ExportOptions.observations,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
    processes: Processes | None = None,
) -> Path:
    """Export the policy of a run as a bundle: one folder that needs nothing of the run.

    Args:
        run: the run folder.
        out: the bundle's folder. Another bundle there is replaced; anything else is not.
        checkpoint: a checkpoint of the run: its name, its update number, ``best`` or ``latest``.
        format: what the bundle holds of ``onnx``, ``ort`` (the graph that acts, for ONNX Runtime on phones),
            ``safetensors`` (the parameters by name) and ``torch`` (a program of ``torch.export``); ``onnx`` always.
        quantize: also make a graph in this precision, which then is the one that acts.
        noise: the graph has the inputs ``noise`` and ``explore``, so that its actions can explore. Not with ``torch``.
        observations: how many the bundle's sample has. int8 is calibrated on them.
        env: a callable that makes an environment, if the run's environment has no name.
        wrap: the run's wrappers, if one of them has no name.
        processes: as in `penstock.train`.

    Returns:
        The bundle's folder.

    Raises:
        UsageError: no such run, a checkpoint that cannot be used, a folder that is taken, an unknown precision,
            formats that do not fit together, a module of the user's own that ONNX cannot express; ``observations`` is
            no whole number of at least 1.

    Example:
        bundle = penstock.export("logs/pendulum", "policy", checkpoint="best")
        policy = penstock.load_policy(bundle)
    """
    observations = count_of(observations, "observations of export")
    if quantize not in (None, *PRECISIONS):
        raise ConfigError(f"there is no --quantize {quantize}; give one of {', '.join(PRECISIONS)}")
    folder, out = RunFolder.open(run), expanded(out)
    check_place(out)
    if isinstance(format, str):
        format = (format,)  # noqa: A001 - the argument's own name
    unknown = [name for name in format if name not in FORMATS]
    if unknown:
        raise ConfigError(f"there is no --format {unknown[0]}; give one of {', '.join(FORMATS)}")
    if noise and "torch" in format:
        raise ConfigError("--noise True is for onnx: the program of --format torch is greedy; leave out one of the two")
    with processes or Processes() as opened:
        trained = open_trained(opened, folder, checkpoint, given_of(env, wrap), "export")
        sample = _observed(opened, folder, _apart(trained), observations, trained.prepared.config.run.seed)
    acting = _deployed(trained)
    graph, spaces, published = acting.graph, acting.spaces, acting.record(trained.published)
    own = graph.actor.own
    exported = b"" if own is None else load("penstock.torch_networks.own_export:exported")(own)
    model = onnx_bytes(graph, spaces, published, exported, noise=noise)
    inputs, outputs = ports_of(graph, spaces, noise=noise)
    facts = Facts(_origin(folder, trained), __version__, quantize or "fp32", spaces, inputs, outputs)
    given = facts.filled(sample.inputs)
    answers = {port.name: sample.outputs[port.name] for port in outputs}
    files = {GRAPHS["fp32"]: model, SAMPLE: pack_sample(Sample(given, answers))}
    if quantize is not None:
        files[GRAPHS[quantize]] = quantized(model, quantize, given)
    if "ort" in format:
        files[MOBILE] = ort_format(files[GRAPHS[facts.precision]])
    if "safetensors" in format:
        files[PARAMETERS] = safetensors.numpy.save(_named(graph, published))
    if "torch" in format:
        files[PROGRAM] = load("penstock.torch_networks.program:exported")(graph, spaces, published, given)
    write_bundle(out, facts, files)
    return out


def verify(
    bundle: Path | str,
    *,
    against: Path | str | None = None,
    checkpoint: str | int | None = None,
    limits: Limits = EXACT,
    quantized_limits: Limits = QUANTIZED,
    observations: int | None = None,
    seed: int | None = None,
    env: EnvFactory | None = None,
    wrap: Sequence[Any] | None = None,
    processes: Processes | None = None,
) -> Verification:
    """Compare the graphs of a bundle with the trained network: the same actions, how far off, how large, how fast.

    Args:
        bundle: the bundle's folder.
        against: the run folder; its environment is played for fresh observations. ``None``: the bundle's own sample.
        checkpoint: of that run; ``None``: the one that the bundle was exported from.
        limits: what the graph in fp32 must keep to.
        quantized_limits: what graphs in int8 and fp16 must keep to.
        observations: how many to compare, if the run is played; ``None``: `VERIFIED`.
        seed: of the played episodes; ``None``: one that exports do not use.
        env: as in `export`.
        wrap: as in `export`.
        processes: as in `penstock.train`.

    Returns:
        A report for each graph and each processor that can run it. ``passed`` is true if all keep to their limits, and
        ``table()`` shows them as text.

    Raises:
        UsageError: there is no such bundle or run; the run's policy takes or gives other arrays; ``checkpoint``,
            ``observations`` or ``seed`` is given without ``against``; ``observations`` is no whole number of at least
            1.

    Example:
        verification = penstock.verify("policy", against="logs/pendulum")
        print(verification.table())
    """
    if observations is not None:
        observations = count_of(observations, "observations of verify")
    of_run = {"checkpoint": checkpoint, "observations": observations, "seed": seed}
    useless = [f"--{name}" for name, value in of_run.items() if value is not None]
    if against is None and useless:
        raise ConfigError(f"{useless[0]} needs --against RUN; without it, the bundle's own sample is compared")
    found = read_bundle(expanded(bundle))
    beside, reports, sample = "its own sample", [], found.sample()
    if against is not None:
        folder = RunFolder.open(against)
        name = _own_checkpoint(found, folder) if checkpoint is None else checkpoint
        with processes or Processes() as opened:
            trained = open_trained(opened, folder, name, given_of(env, wrap), "verify")
            _check_form(found, trained, folder)
            own = trained.prepared.config.run.seed
            asked = VERIFIED if observations is None else observations
            sample = _observed(opened, folder, _apart(trained), asked, own + 1 if seed is None else seed)
        beside = f"{folder.name}, {trained.checkpoint.name}"
        reports.append(_of_run(_apart(trained), sample))
    keeps = dict.fromkeys(found.precisions, quantized_limits) | {"fp32": limits}
    left_out: dict[str, str] = {}
    for precision in found.precisions:
        graph = _Graph(found, GRAPHS[precision], precision)
        for provider in _providers():
            try:
                reports.append(graph.report(provider, sample, keeps[precision]))
            except DeviceError as error:
                left_out[provider] = str(error)
    if MOBILE in found.files:
        acts = found.facts.precision
        reports.append(_Graph(found, MOBILE, acts).report(CPU, sample, keeps[acts]))
    reasons = tuple(f"left out: {reason}" for reason in left_out.values())
    return Verification(str(bundle), beside, sample.rows, tuple(reports), reasons)


def _apart(trained: Trained) -> Trained:
    """The run with a policy backend that has nothing in common with the graph of a bundle.

    If its own is ONNX Runtime, a graph would be compared with itself: then it is torch.
    """
    prepared = trained.prepared
    if prepared.config.run.inference != "onnx":
        return trained
    config = replace(prepared.config, run=replace(prepared.config.run, inference="torch"))
    backend = backend_of("torch", config, prepared.profile, prepared.algorithm, prepared.spec)
    return replace(trained, prepared=replace(prepared, config=config, inference=backend))


def _observed(processes: Processes, folder: RunFolder, trained: Trained, rows: int, seed: int) -> Sample:
    """Play greedy episodes of the run's environment; what the policy was given and what it answered."""
    prepared = with_opponents(trained.prepared, folder.path)
    run, profile = prepared.config.run, prepared.profile
    env = prepared.env
    if profile.kind == "game":
        # Games cannot be asked for episodes. The kept ones hold what earlier versions of this policy observed.
        kept = {"agent": agent_name(env), "folder": str(folder.episodes)}
        env = EnvRecipe("penstock.envs.kept:ReplayedEpisodes", kept, ())
    settings = trained.play_settings(env, min(LANES, rows), seed)
    asked = settings, trained.published, rows, PLAY_LIMIT_S
    if RUNTIMES[run.runtime].processes:
        subject = f"environment {profile.name}"
        errand = Errand("player", "penstock.nodes.evaluation:record", subject, "played", "playing", EnvError)
        recorded: Arrays = call_apart(processes, errand, 2 * WORK_LIMIT_S + PLAY_LIMIT_S, *asked)
    else:
        recorded = record(*asked)
    inputs, outputs = (
        {name.removeprefix(prefix): values for name, values in recorded.items() if name.startswith(prefix)}
        for prefix in (INPUT, OUTPUT)
    )
    return sample_of((inputs, outputs), profile.spaces)


def _origin(folder: RunFolder, trained: Trained) -> dict[str, Any]:
    """Where a bundle comes from, for its manifest."""
    prepared = trained.prepared
    run, agent = prepared.config.run, {}
    if prepared.profile.kind == "game":
        arguments = dict(prepared.env.arguments) if isinstance(prepared.env, EnvRecipe) else {}
        agent = {"agent": {"arguments": arguments, "hooks": [*hooks_of(agent_class(prepared.env))]}}
    return {
        "name": folder.name,
        "algorithm": run.algo,
        "env": prepared.profile.name,
        "seed": run.seed,
        "checkpoint": trained.checkpoint.name,
        "update": int(trained.arrays["update"]),
        "steps": int(trained.arrays["steps"]),
        **agent,
    }


def _named(graph: PolicyGraph, published: Mapping[str, Any]) -> Arrays:
    """Parameters by network and name in their shapes, and the statistics."""
    found = {name: values for name, values in published.items() if name not in {one.name for one in graph.networks}}
    for network in graph.networks:
        for part in network.slices():
            values = published[network.name][part.offset :][: math.prod(part.shape)]
            found[f"{network.name}.{part.name}"] = values.reshape(part.shape)
    # Copies, because safetensors takes whole arrays only.
    return {name: values.copy() for name, values in found.items()}


def _own_checkpoint(bundle: Bundle, folder: RunFolder) -> str:
    """The checkpoint that the bundle was exported from, if the run has it."""
    name = str(bundle.facts.run["checkpoint"])
    if name not in {path.name for path in list_checkpoints(folder.path)}:
        raise BundleError(
            f"bundle {bundle.path} comes from {name} of run {bundle.facts.run['name']}, and run {folder.name} has no "
            "such checkpoint; give --checkpoint latest to compare with another one"
        )
    return name


def _check_form(bundle: Bundle, trained: Trained, folder: RunFolder) -> None:
    """Refuse a run whose policy takes or gives other arrays than the bundle."""
    facts, acting, whole = bundle.facts, _deployed(trained), trained.prepared.profile.spaces
    graph, spaces = acting.graph, acting.spaces
    # In a bundle of an older version, the policy takes the fields that only the critic sees.
    if not difference(facts.spaces, whole):
        graph, spaces = acting.trained, whole
    differs = difference(facts.spaces, spaces)
    if differs:
        raise BundleError(f"bundle {bundle.path} is not of run {folder.name}: its spaces {differs}")
    explores = any(port.role == "noise" for port in facts.inputs)
    ports = ports_of(graph, spaces, noise=explores)
    sides = zip(("takes", "gives"), (facts.inputs, facts.outputs), ports, strict=True)
    for verb, own, other in sides:
        if set(own) != set(other):
            raise BundleError(
                f"bundle {bundle.path} is not of run {folder.name}: it {verb} {_listed(own)}; that run's policy "
                f"{verb} {_listed(other)}"
            )


def _deployed(trained: Trained) -> Deployed:
    """The policy of a run, as a bundle of it has it."""
    return deployed(trained.prepared.spec.policy, trained.prepared.profile.spaces)


def _listed(ports: Sequence[Port]) -> str:
    return ", ".join(f"{port.name} {port.dtype}{[*port.shape]}" for port in ports)


def _of_run(trained: Trained, sample: Sample) -> Report:
    """The policy backend that has answered the sample."""
    prepared = trained.prepared
    policy = whole_policy_of(prepared, trained.published)
    nbytes = sum(values.nbytes for values in trained.published.values())
    taken = latencies(policy, sample)
    return Report(f"{prepared.config.run.inference} (trained)", "fp32", 1.0, 0.0, {}, {}, nbytes, taken, passed=True)


@dataclass(frozen=True)
class _Graph:
    """One graph of a bundle."""

    bundle: Bundle
    file: str
    precision: str

    def report(self, provider: str, sample: Sample, limits: Limits) -> Report:
        """The graph beside the trained network."""
        model, outputs = self.bundle.files[self.file], self.bundle.facts.outputs
        policy = BundlePolicy(self.bundle, model, provider)
        found = policy.runner.run(sample.inputs, [port.name for port in outputs])
        return Report(
            backend=f"{self.file.rpartition('.')[2]}, {provider.removesuffix('ExecutionProvider')}",
            precision=self.precision,
            bytes=len(model),
            latency_us=latencies(policy, sample),
            **compared(sample, found, outputs, self.bundle.facts.spaces, limits),
        )


def _providers() -> list[str]:
    """What this ONNX Runtime was built with, the CPU first. Whether it can compute here shows once it is opened."""
    import onnxruntime  # noqa: PLC0415 - importing this module must stay light

    wanted = (CPU, "CUDAExecutionProvider", "TensorrtExecutionProvider")
    return [name for name in wanted if name in onnxruntime.get_available_providers()]
