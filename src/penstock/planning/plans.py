"""The plan of a run, from a settled config: from the beginning, or from a checkpoint that fits it."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from penstock.algorithm import DEMONSTRATED, Cloning
from penstock.config.agreement import learners_text
from penstock.config.nodes_text import policy_nodes_text, processes_text
from penstock.config.resolve import available_cores
from penstock.config.schema import RunConfig
from penstock.config.sources import to_toml
from penstock.config.whole import Config
from penstock.envs.rewards import find_reward, no_infos
from penstock.envs.sources import EnvProfile
from penstock.errors import CheckpointError, ConfigError
from penstock.memory.action_log import Position
from penstock.nodes.contract import LaneStart
from penstock.planning.games import game_settings
from penstock.planning.kept_episodes import check_agent, lacking
from penstock.planning.own_modules import top_level
from penstock.planning.prepared import Prepared
from penstock.program.plan import LearningPlan, Plan
from penstock.registry import RUNTIMES, UPDATES
from penstock.saved_runs.checkpoints import Checkpoint, checkpoint_path
from penstock.saved_runs.demonstrations import Demonstrations, KeptEpisodes, KeptTable, find_demonstrations
from penstock.saved_runs.episodes import episode_number, is_held_out, list_episodes
from penstock.saved_runs.pasts import read_pasts
from penstock.saved_runs.run_folder import RunFolder
from penstock.types import Arrays

__all__ = ["check_fits", "check_plan", "plan"]


def check_fits(prepared: Prepared, checkpoint: Checkpoint) -> None:
    """Check that the checkpoint holds every array of the state, in the shapes of the config.

    Raises:
        CheckpointError: one is missing or differs: the config or the user's own module was edited after the checkpoint
            was written.
    """
    own = prepared.spec.policy.actor.own
    what = "the run's settings" + ("" if own is None else f" and its module {own.reference}")
    for spec in prepared.spec.state:
        found = checkpoint.arrays.get(spec.name)
        if found is None or found.shape != spec.shape or found.dtype != np.dtype(spec.dtype):
            has = "missing" if found is None else f"{found.dtype.name} {list(found.shape)}"
            raise CheckpointError(
                f"checkpoint {checkpoint.path} does not fit {what}: its {spec.name} is {has}, they need "
                f"{spec.dtype} {list(spec.shape)}; set them back to what the run began with"
            )


def check_plan(prepared: Prepared) -> None:
    """Refuse what `plan` refuses, before the number of environment processes is settled.

    Raises:
        UsageError: as `plan`.
    """
    _check_precision(prepared.config)
    _checked_reward(prepared)
    _demonstrations(prepared)


def _title_line(run: RunConfig, profile: EnvProfile, folder: Path) -> str:
    """The first line of a run's display: what is trained, and where."""
    lanes = "1 lane" if run.num_envs == 1 else f"{run.num_envs} lanes"
    if RUNTIMES[run.runtime].processes and profile.kind != "game":
        # Else one process has them all, whatever the number of environment nodes is.
        lanes += f" in {processes_text(run.num_workers)}"
    nodes = [text for text in (policy_nodes_text(run), learners_text(run)) if text]
    told = f"{'; '.join([lanes, *nodes])};" if nodes else f"{lanes},"
    return f"{run.algo} on {profile.name}: {told} {run.timesteps:,} steps, seed {run.seed}; run folder {folder}"


def plan(prepared: Prepared, folder: Path, *, quiet: bool, begin: Checkpoint | None = None) -> Plan:
    """The plan of a run in ``folder``, from the beginning or from a checkpoint.

    Raises:
        UsageError: float16 cannot learn on this device or with these settings, although such a policy can act here; or
            the user's own reward or the demonstrations cannot be used.
    """
    config, profile = prepared.config, prepared.profile
    run = config.run
    _check_precision(config)
    if not isinstance(run.num_workers, int) or not isinstance(run.threads, int):
        raise ConfigError("a plan needs a config that is resolved")
    fresh = Plan(
        run=run,
        learning=LearningPlan(
            spec=prepared.spec,
            algorithm_config=config.algorithm,
            learn=prepared.functions(),
            initial=prepared.algorithm.initial,
            backend=UPDATES[run.backend],
            inference=prepared.inference,
        ),
        env=prepared.env,
        reward=_checked_reward(prepared),
        spaces=profile.spaces,
        kind=profile.kind,
        same_step=profile.same_step,
        # EnvPool and ale-py step a batch in a thread of their own, and the caller waits for it. If processes are not
        # pinned to cores, the system wakes this thread on the core of another process. Then one step of EnvPool took
        # 150 us in each of two processes, instead of 75.
        own_cores=profile.kind == "vector" and run.num_workers >= available_cores(),
        num_steps=config.algorithm.num_steps,
        num_workers=run.num_workers,
        learner_threads=run.threads,
        folder=folder,
        settings=to_toml(config),
        manifest=prepared.manifest(),
        starts=tuple(LaneStart() for _ in range(run.num_envs)),
        quiet=quiet,
        first_lines=(_title_line(run, profile, folder), *prepared.remarks),
        modules=top_level(prepared.own_modules()),
        demonstrations=_demonstrations(prepared),
        games=game_settings(run, profile, prepared.env, folder),
        checkpoint=None if run.begin_with is None else checkpoint_path(RunFolder(folder).beginning, 0),
    )
    if begin is None:
        return fresh
    return replace(
        fresh,
        starts=_starts(begin.arrays, config.algorithm.num_steps, restorable=profile.restorable),
        checkpoint=begin.path,
        resumed_update=int(begin.arrays["update"]),
        resumed_steps=int(begin.arrays["steps"]),
        resumed_s=float(begin.arrays["elapsed_s"]),
    )


def _checked_reward(prepared: Prepared) -> str | bytes | None:
    """The user's own reward, once it is known to fit this environment; ``None`` if there is none.

    Raises:
        EnvError: as `find_reward`; also if it takes ``info`` and the environment steps many lanes in one call.
    """
    if prepared.reward is not None:
        found = find_reward(prepared.reward)
        if found.wants_info and prepared.profile.kind == "vector":
            raise no_infos(found, prepared.profile.name)
    return prepared.reward


def _demonstrations(prepared: Prepared) -> tuple[Demonstrations, ...]:
    run = prepared.config.run
    if run.demonstrations is None:
        if prepared.spec.cloning is not None:
            raise ConfigError(
                f"{run.algo} learns from demonstrations alone, and there are none; give --demonstrations, a folder of "
                "episodes as penstock eval RUN --keep FOLDER writes them"
            )
        if DEMONSTRATED in prepared.spec.minibatch:
            flag = " (--imitation)" if hasattr(prepared.config.algorithm, "imitation") else ""
            why = f"keeps to demonstrations{flag}, and there are none; give --demonstrations as well"
            raise ConfigError(f"{run.algo} {why}")
        return ()
    return tuple(_found_in(Path(folder), prepared) for folder in run.demonstrations)


def _found_in(folder: Path, prepared: Prepared) -> Demonstrations:
    found = find_demonstrations(folder, prepared.profile.spaces, prepared.identity()["reward"])
    algo, cloning = prepared.config.run.algo, prepared.spec.cloning
    if isinstance(found, KeptTable) and cloning is not None:
        raise ConfigError(
            f"--demonstrations {folder}: a replay table holds what a policy tried while it learned, and {algo} would "
            f"imitate that; play episodes to imitate: penstock eval {folder} --keep FOLDER"
        )
    if isinstance(found, KeptEpisodes) and (lacks := lacking(prepared.spec)) is not None:
        raise ConfigError(f"--demonstrations {found.folder}: {algo} {lacks}; give a run folder")
    if isinstance(found, KeptEpisodes):
        check_agent(prepared.env, {found.newest: found.agent}, f"--demonstrations {found.folder}")
        if cloning is not None:
            _check_held_out(found, cloning)
    return found


def _check_held_out(found: KeptEpisodes, cloning: Cloning) -> None:
    """Check that some episodes are held out, if any shall be, and that others are left to learn from.

    Raises:
        ConfigError: they are not.
    """
    numbers = [episode_number(path) for path in list_episodes(found.folder)]
    judging = sum(is_held_out(number, cloning.held_out) for number in numbers)
    if (cloning.held_out and not judging) or judging == len(numbers):
        which = "all" if judging else "none"
        raise ConfigError(
            f"--demonstrations {found.folder}: of its {len(numbers)} episodes --held_out {cloning.held_out:g} holds "
            f"out {which}; record more of them, or give another share, or --held_out 0"
        )


def _starts(arrays: Arrays, num_steps: int, *, restorable: bool) -> tuple[LaneStart, ...]:
    """Where each lane continues: in the episode where it stopped, or with its next one if that cannot be restored."""
    pasts = read_pasts(arrays)
    carried = [name for name in arrays if name.startswith("lane_carry.")]
    starts = []
    for lane, rollout in enumerate(arrays["lane_rollout"]):
        if not rollout:
            # Nothing of this lane was learned, so it has no position, and no episode that could be restored.
            starts.append(LaneStart())
            continue
        position, past = Position(*map(int, arrays["lane_position"][lane])), pasts[lane]
        start = LaneStart(
            position.episode,
            int(rollout) * num_steps,
            int(rollout),
            collected=int(arrays["lane_collected"][lane]),
            spoilt=int(arrays["lane_spoilt"][lane]),
        )
        if restorable and past is not None:
            carry = {name.removeprefix("lane_"): arrays[name][lane] for name in carried}
            starts.append(replace(start, position=position, actions=past.actions, base=past.base, carry=carry))
        else:
            starts.append(replace(start, episode=position.episode + 1))
    return tuple(starts)


def _check_precision(config: Config) -> None:
    """Check that float16 learns on a GPU, and with an exchange that keeps the scale of its loss.

    Raises:
        ConfigError: it does not.
    """
    run = config.run
    if getattr(config.algorithm, "precision", None) != "float16":
        return
    if run.device == "cpu":
        raise ConfigError("--precision float16 is for GPUs: give --device cuda, or --precision bfloat16")
    if run.compress != "none":
        raise ConfigError(
            f"--compress {run.compress} cannot encode the infinite gradients by which float16 finds its scale; try "
            "--precision bfloat16"
        )
    if run.exchange == "hogwild":
        raise ConfigError(
            "--exchange hogwild adds up what learners change, and two that lower the scale of float16's loss would "
            "make it 0; try --precision bfloat16"
        )
