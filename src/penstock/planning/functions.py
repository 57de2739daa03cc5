"""Has the functions of a user's algorithm tried in a dry run, before anything of a run is started."""

from penstock.algorithm import UpdaterSettings
from penstock.algorithm_package import ships
from penstock.errors import ConfigError
from penstock.planning.prepared import Prepared
from penstock.processes.apart import Errand, call_apart
from penstock.processes.starts import Processes
from penstock.program.rollout import rollout_specs
from penstock.registry import RUNTIMES, UPDATES, load

__all__ = ["check_functions"]

DRY_RUN = "penstock.updates.dry_run:dry_run"
LANES = 2
LIMIT_S = 300.0


def check_functions(prepared: Prepared, processes: Processes) -> None:
    """Check what the ``learn.py`` of a user's algorithm gives, by calling each function on made-up rows.

    Nothing is called if the native update runs the algorithm, because torch is not imported then.

    Args:
        prepared: the run.
        processes: one of them makes the calls. Its template imports torch, and later forks the learner.

    Raises:
        ConfigError: a function fails, or gives other arrays than its spec says.
    """
    run, spec, spaces = prepared.config.run, prepared.spec, prepared.profile.spaces
    backend = UPDATES[run.backend]
    if ships(prepared.algorithm) or backend.native:
        return
    config = prepared.config.algorithm
    settings = UpdaterSettings(prepared.learn(), config, spec, spaces, device="cpu", threads=1, seed=run.seed)
    same_step = prepared.profile.same_step
    slot = rollout_specs(spaces, spec.row, config.num_steps, LANES, same_step=same_step, carry=spec.policy.carry)
    asked = prepared.algorithm.name, prepared.algorithm.initial, settings, slot
    if not RUNTIMES[run.runtime].processes:
        load(DRY_RUN)(*asked)
        return
    imports = (backend.stream.partition(":")[0],) if run.device == "cpu" else ()
    subject = f"algorithm {prepared.algorithm.name}"
    errand = Errand("dry run", DRY_RUN, subject, "tried on made-up rows", "trying", ConfigError, imports)
    call_apart(processes, errand, LIMIT_S, *asked)
