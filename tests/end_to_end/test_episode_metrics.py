"""Whole runs that follow numbers of the environment's infos: in training, in evaluations, and after a resume."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import penstock
from penstock.errors import BadDataError
from penstock.metrics.jsonl import read_reports
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from tests.end_to_end.test_resume_is_exact import BATCH, train
from tests.environments import ClockEnv

pytestmark = pytest.mark.usefixtures("shared_templates")

NAMES = ["won", "laps"]


class Race(ClockEnv):
    """Two laps of ten steps. The seed of an episode says whether it is won; only its last info tells."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.won = bool(self.np_random.integers(2))
        return obs, info

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"laps": self.steps / 10, **({"won": self.won} if truncated else {})}


class Wordy(Race):
    """Says in words how it has ended."""

    def step(self, action):
        *others, info = super().step(action)
        return *others, {**info, "won": "yes"}


def make_races(num_envs: int) -> SyncVectorEnv:
    """Races in one call that begins the next ones in the same step."""
    return SyncVectorEnv([Race] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def half(reward):
    return reward / 2


def lines(result: penstock.Result, holding: str) -> list[dict[str, float]]:
    """The metrics of the lines that hold this one."""
    return [dict(report.values) for report in read_reports(result.run_folder) if holding in report.values]


def told(result: penstock.Result, prefix: str) -> dict[int, dict[str, float]]:
    """Update -> its metrics whose names begin so. The evaluation at the end is left out."""
    found = {}
    for report in read_reports(result.run_folder):
        values = {name: value for name, value in report.values.items() if name.startswith(prefix)}
        if values and "eval/final" not in report.values:
            found[report.update] = values
    return found


def kept(result: penstock.Result, name: str) -> np.ndarray:
    """What the latest checkpoint holds of a metric."""
    return load_checkpoint(find_checkpoint(result.run_folder)).arrays[f"episode_metric.{name}"]


TABLE = {"algo": "dqn", "min_rows": 48, "mini_batch_size": 16, "capacity": 1000, "updates_per_step": 0.1}


@pytest.mark.parametrize(
    "settings",
    [
        {"eval_interval": 2},
        {"env": f"{__name__}:make_races"},
        TABLE,
        {"reward": f"{__name__}:half"},
        {"runtime": "local", "sync_mode": "non_blocking"},
        {"runtime": "local", "learners": 2},
    ],
    ids=["scalar", "vector", "table", "own reward", "overlapping", "two learners"],
)
def test_means_over_the_episodes_are_metrics_of_the_run(tmp_path, settings) -> None:
    values = {"env": f"{__name__}:Race", "episode_metrics": NAMES, **settings}
    if "algo" in settings:
        sizes = {"num_envs": 4, "num_steps": 24, "num_workers": 2, "eval_episodes": 2, "timesteps": 4 * BATCH}
        result = penstock.train({**values, **sizes, "runtime": "inline", "log_dir": str(tmp_path)}, quiet=True)
    else:
        result = train(tmp_path, 4, **values)
    last = lines(result, "rows/collected")[-1]
    assert last["episode/laps"] == 2.0
    assert last["episode/won"] == kept(result, "won")[-int(last["rollout/episodes"]) :].mean()
    assert result.evaluation is not None
    assert result.evaluation.metrics["laps"] == 2.0
    assert result.evaluation.metrics["won"] in {0.0, 0.5, 1.0}
    for line in lines(result, "eval/return_mean"):
        assert line["eval/episode/laps"] == 2.0
    assert penstock.evaluate(result.run_folder, episodes=2, quiet=True).metrics["laps"] == 2.0
    assert not [note for note in result.notes if "last info" in note]


OF_EACH_KIND = ["laps", "won:sum", "steps:min", "steps:max", "steps:p25"]


class Uneven(Race):
    """Ends after ten to nineteen steps, which the seed of the episode decides."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.end = 10 + int(self.np_random.integers(10))
        return obs, info

    def step(self, action):
        *others, info = super().step(action)
        obs, reward, terminated, _ = others
        return obs, reward, terminated, self.steps == self.end, {**info, "won": self.won, "steps": self.steps}


def test_a_number_is_reported_by_the_kinds_that_were_asked_for_and_a_resume_is_exact(tmp_path) -> None:
    settings = {"env": f"{__name__}:Uneven", "episode_metrics": OF_EACH_KIND, "eval_interval": 2}
    whole = train(tmp_path / "whole", 6, **settings)
    first = train(tmp_path / "parts", 3, **settings)
    second = penstock.resume(first.run_folder, timesteps=6 * BATCH, quiet=True)
    last = lines(whole, "rows/collected")[-1]
    steps = kept(whole, "steps")
    steps, won = steps[~np.isnan(steps)], kept(whole, "won")
    assert len(steps) == last["rollout/episodes"] > len(set(steps.tolist())) > 2
    assert last["episode/won:sum"] == np.nansum(won)
    assert (last["episode/steps:min"], last["episode/steps:max"]) == (steps.min(), steps.max())
    assert last["episode/steps:p25"] == np.quantile(steps, 0.25)
    assert last["episode/laps"] == pytest.approx(steps.mean() / 10)
    # Reports and evaluations have the same bits whether the run was cut or not.
    for prefix in ("episode/", "eval/episode/"):
        uncut, cut = told(whole, prefix), told(second, prefix)
        assert set(uncut[6]) == {f"{prefix}{label}" for label in OF_EACH_KIND}
        assert max(uncut.keys() & cut.keys()) == 6
        assert all(uncut[update] == cut[update] for update in uncut.keys() & cut.keys())
    assert whole.evaluation is not None
    assert set(whole.evaluation.metrics) == set(OF_EACH_KIND)
    judged = penstock.evaluate(whole.run_folder, episodes=2, quiet=True).metrics
    assert judged["steps:max"] >= judged["steps:p25"] >= judged["steps:min"] >= 10.0


def test_a_resume_may_report_other_kinds_of_the_numbers_that_it_has(tmp_path) -> None:
    first = train(tmp_path, 4, env=f"{__name__}:Race", episode_metrics=["laps"])
    asked = {"episode_metrics": ["laps:sum"]}
    second = penstock.resume(first.run_folder, timesteps=5 * BATCH, settings=asked, quiet=True)
    last = lines(second, "rows/collected")[-1]
    # Two laps in each of the episodes before and after the resume.
    assert last["episode/laps:sum"] == 2.0 * last["rollout/episodes"] > 0.0
    assert "episode/laps" not in last


def test_a_run_without_them_reads_no_info_and_has_no_such_metric(tmp_path) -> None:
    result = train(tmp_path, 2, env=f"{__name__}:Race")
    assert not [name for line in lines(result, "rollout/episodes") for name in line if name.startswith("episode/")]
    assert result.evaluation is not None
    assert result.evaluation.metrics == {}


def test_a_resumed_run_goes_on_with_its_means_and_may_have_other_names(tmp_path) -> None:
    settings = {"env": f"{__name__}:Race", "episode_metrics": NAMES}
    whole = train(tmp_path / "whole", 6, **settings)
    first = train(tmp_path / "parts", 3, **settings)
    second = penstock.resume(first.run_folder, timesteps=6 * BATCH, quiet=True)
    np.testing.assert_array_equal(kept(second, "won"), kept(whole, "won"))
    renamed = {"episode_metrics": ["laps", "unheard"]}
    third = penstock.resume(second.run_folder, timesteps=8 * BATCH, settings=renamed, quiet=True)
    last = lines(third, "rows/collected")[-1]
    assert last["episode/laps"] == 2.0
    assert "episode/won" not in last
    assert third.notes[-1].startswith("no unheard in the last info of ")


def test_a_misspelt_name_is_told_of_and_stops_nothing(tmp_path) -> None:
    result = train(tmp_path, 4, env=f"{__name__}:Race", episode_metrics=["wno"])
    told = [line for line in (result.run_folder / "run.log").read_text().splitlines() if "no wno in" in line]
    assert len(told) == 2, "with the first episodes, and at the end"
    assert result.notes == (told[-1].partition(" ")[2],)


def test_a_value_that_is_no_number_ends_the_run_with_its_name(tmp_path) -> None:
    says = r"env\.\d: at step 19 of the lane .*won in the last info of lane \d of .*Wordy is yes, which is no number"
    with pytest.raises(BadDataError, match=says):
        train(tmp_path, 4, env=f"{__name__}:Wordy", episode_metrics=NAMES)
