"""Tries the functions of a user's algorithm in a dry run, before the run itself starts anything."""

from penstock.algorithm_lookup import ships
from penstock.errors import ConfigError
from penstock.planning.prepared import Prepared
from penstock.processes.errand import Errand, call_apart
from penstock.processes.starts import Processes
from penstock.program.rollout import rollout_specs
from penstock.registry import RUNTIMES, TOPOLOGIES, UPDATES, load
from penstock.updates.settings import UpdaterSettings

__all__ = ["check_functions"]

DRY_RUN = "penstock.updates.dry_run:dry_run"
NATIVE_DRY_RUN = "penstock.updates.fused.dry_run:dry_run"
LANES = 2
LIMIT_S = 300.0


def check_functions(prepared: Prepared, processes: Processes) -> None:
    """Check what a user's algorithm gives for the update, by calling each of its functions on made-up rows.

    If the native update runs the algorithm, they are the functions of its ``fused.py``, and torch is not imported.
    Otherwise they are those of its ``learn.py``.

    Args:
        prepared: the run.
        processes: one of them makes the calls. Its template imports what the update needs, and later forks the learner.

    Raises:
        ConfigError: a function fails, or gives other arrays than its spec says, or ends its process.
    """
    run, spec, spaces = prepared.config.run, prepared.spec, prepared.profile.spaces
    if ships(prepared.algorithm):
        return
    config, backend = prepared.config.algorithm, UPDATES[run.backend]
    settings = UpdaterSettings(prepared.functions(), config, spec, spaces, device="cpu", threads=1, seed=run.seed)
    same_step = prepared.profile.same_step
    slot = rollout_specs(spaces, spec.row, config.num_steps, LANES, same_step=same_step, carry=spec.policy.carry)
    asked = prepared.algorithm.name, prepared.algorithm.initial, settings, slot
    function, named = DRY_RUN, {}
    if backend.native:
        function, named = NATIVE_DRY_RUN, {"shared": run.learners > 1 or TOPOLOGIES[spec.topology].learns_in_envs}
    if not RUNTIMES[run.runtime].processes:
        load(function)(*asked, **named)
        return
    imports = (backend.stream.partition(":")[0],) if run.device == "cpu" else ()
    subject = f"algorithm {prepared.algorithm.name}"
    errand = Errand("dry run", function, subject, "tried on made-up rows", "trying", ConfigError, imports)
    call_apart(processes, errand, LIMIT_S, *asked, **named)
