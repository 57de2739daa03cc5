"""Whole runs against opponents: earlier versions of themselves, random moves, other runs."""

import numpy as np
import pytest

import penstock
from examples.self_play import EQUILIBRIUM, SETTINGS, STAKES, exploited
from penstock.envs.given import Given
from penstock.errors import ConfigError, EnvError
from penstock.metrics.jsonl import evaluations, read_reports
from penstock.processes.starts import Processes
from penstock.saved_runs.checkpoints import list_checkpoints, load_to_play
from penstock.saved_runs.run_folder import RunFolder
from penstock.saved_runs.run_metrics import read_metrics
from penstock.trained import open_trained, with_opponents
from tests.children import killing
from tests.fingerprints import fingerprint

pytestmark = pytest.mark.usefixtures("shared_templates")

DUEL = "pettingzoo:tests.team_environments:Duel"
SMALL = {"env": DUEL, "num_envs": 4, "num_steps": 16, "mini_batch_size": 32, "epochs": 2, "eval_episodes": 4}
UPDATE = 4 * 11
"""Valid rows of an update: an episode has 2 steps and a reset, so 16 steps hold 10 or 11."""


def train(tmp_path, **settings):
    values = {**SMALL, "save_interval": 1, "timesteps": 12 * UPDATE, "log_dir": str(tmp_path), **settings}
    return penstock.train(values, quiet=True)


def last(result, name):
    """The last reported number of this name."""
    return [report.values[name] for report in read_reports(result.run_folder) if name in report.values][-1]


def newest_report(result):
    """The last reported numbers of training."""
    return [report.values for report in read_reports(result.run_folder) if "episode/score/all" in report.values][-1]


@pytest.mark.parametrize("rule", ["uniform", "latest", "hard"])
def test_lock_step_gives_the_same_bits_with_any_number_of_processes(tmp_path, rule):
    # With early_stop no evaluation is left out because the one before takes long.
    settings = {"opponents": ["self"], "opponent_rule": rule, "eval_interval": 3, "early_stop": 100}
    runs = [
        train(tmp_path / "one", runtime="inline", num_workers=1, **settings),
        train(tmp_path / "two", runtime="local", num_workers=2, **settings),
        train(tmp_path / "node", runtime="local", num_workers=4, policy_placement="node", **settings),
    ]
    first, *others = map(fingerprint, runs)
    assert others == [first] * 2
    # Evaluations on the way. In that at the end, episodes depend on the number of players.
    on_the_way = [evaluations(run.run_folder) for run in runs]
    assert len(on_the_way[0]) >= 3
    assert on_the_way[1:] == [on_the_way[0]] * 2
    # The versions did play.
    assert 0.0 <= last(runs[0], "episode/score/self") <= 1.0
    assert 0.0 <= last(runs[0], "episode/score/random") <= 1.0


def test_versions_stay_and_are_told(tmp_path):
    result = train(tmp_path, opponents=["self"], save_interval=2, keep_checkpoints=1)
    config = RunFolder(result.run_folder).read_config().run
    assert config.keep_every == 2
    assert config.episode_metrics == ("score/all", "score/self", "score/random")
    updates = [int(path.name.removeprefix("update-")) for path in list_checkpoints(result.run_folder)]
    assert set(range(2, result.updates, 2)) <= set(updates)
    assert "--opponents self keeps every checkpoint (--keep_every 2)" in (result.run_folder / "run.log").read_text()
    assert "`self`" in (result.run_folder / "README.md").read_text()


def test_a_run_says_when_its_first_version_plays(tmp_path):
    settings = {"opponents": ["self"], "save_interval": 4, "keep_every": 6, "eval_interval": 2, "early_stop": 50}
    said = (train(tmp_path, **settings).run_folder / "run.log").read_text()
    # The first multiple of 4 and of 6, and two intervals of 4 after it.
    assert "a multiple of --save_interval 4 and --keep_every 6 is an opponent: every 12 updates" in said
    # 4 environments, 16 steps: 528 steps fill 9 batches, or more if agents are absent.
    first = "the first version plays after 21 updates; until then opponents move at random"
    assert f"{first}; --timesteps 528 may be only 9 updates: give a smaller --save_interval" in said
    assert "--early_stop 50 measures the opponents as well" in said


def test_an_evaluation_on_other_machines_has_no_versions(tmp_path):
    result = train(tmp_path, opponents=["self"], eval_episodes=0)
    with pytest.raises(ConfigError, match=r"does not go with --runtime ray: .* evaluate on one machine"):
        penstock.evaluate(result.run_folder, distributed=True)


def test_against_one_who_moves_at_random_the_optimum_is_known(tmp_path):
    """Always 1 wins 0.5 a step on average, and never loses a step: a score of 1 - (1/4) / 2 = 0.875 in two steps.

    It wins unless the opponent shows 1 twice, which has probability 1/4 and is a draw.
    """
    result = train(tmp_path, opponents=["random"], timesteps=8000, lr=0.01, eval_episodes=400)
    assert result.evaluation.mean_return == pytest.approx(1.0, abs=0.15)
    assert result.evaluation.metrics["score/all"] == pytest.approx(0.875, abs=0.05)
    assert result.evaluation.metrics["score/random"] == result.evaluation.metrics["score/all"]


def test_another_run_is_an_opponent(tmp_path):
    champion = train(tmp_path, opponents=["random"], timesteps=8000, lr=0.01, eval_episodes=0).run_folder
    name = champion.name.removeprefix("pettingzoo_")
    settings = {"opponents": [str(champion), f"{champion}@best"], "eval_episodes": 100, "num_workers": 2}
    result = train(tmp_path, **settings)
    # The champion shows 1 nearly always. So at best the score is a half.
    assert result.evaluation.metrics["score/all"] < 0.55
    assert set(result.evaluation.metrics) == {"score/all", f"score/{name}", f"score/{name}@best"}
    assert f"episode/score/{name}" in read_metrics(result.run_folder).names()
    # Its path does not depend on where a resume is typed.
    config = RunFolder(result.run_folder).read_config().run
    assert config.opponents == (str(champion.resolve()), f"{champion.resolve()}@best")
    # It has learned that only 1 holds its own.
    better = penstock.resume(result.run_folder, timesteps=8000, settings={"lr": 0.01}, quiet=True)
    assert better.evaluation.metrics["score/all"] == pytest.approx(0.5, abs=0.05)


def test_a_run_whose_opponent_was_moved_says_where_to_change_it(tmp_path):
    champion = train(tmp_path / "champion", opponents=["random"], timesteps=UPDATE, eval_episodes=0).run_folder
    result = train(tmp_path / "own", opponents=[str(champion)], timesteps=UPDATE, eval_episodes=0)
    moved = champion.rename(tmp_path / "moved")
    config = RunFolder(result.run_folder).config_path
    with pytest.raises(ConfigError, match=r"--opponents .* is no run folder: .*; if it was moved, change opponents in"):
        penstock.evaluate(result.run_folder, episodes=4)
    config.write_text(config.read_text().replace(str(champion.resolve()), str(moved.resolve())))
    found = penstock.evaluate(result.run_folder, episodes=4)
    assert set(found.metrics) == {"score/all", "score/moved"}


def test_a_resume_goes_on_against_the_versions_and_may_have_other_opponents(tmp_path):
    result = train(tmp_path, opponents=["random"], num_workers=2)
    more = result.steps + 12 * UPDATE
    settings = {"opponents": ["self"], "opponent_rule": "hard"}
    resumed = penstock.resume(result.run_folder, timesteps=more, settings=settings, quiet=True)
    assert resumed.steps >= more
    # All versions of the first part that are left play at once.
    assert last(resumed, "episode/score/self") >= 0.0
    config = RunFolder(result.run_folder).read_config().run
    assert config.episode_metrics == ("score/all", "score/self", "score/random")
    # With several players it depends on timing which of them plays how many.
    again = penstock.evaluate(result.run_folder, episodes=20, num_workers=1)
    assert again == penstock.evaluate(result.run_folder, episodes=20, num_workers=1)
    assert {"score/all", "score/self"} <= set(again.metrics)
    watched = penstock.watch(result.run_folder, episodes=1)
    assert watched.lengths == (2,)


def test_versions_that_are_removed_while_the_run_rests_are_not_missed(tmp_path):
    result = train(tmp_path, opponents=["self"])
    # The last 100 episodes are those of five updates. Random moves were met earlier.
    assert "episode/score/random" not in newest_report(result)
    for path in list_checkpoints(result.run_folder)[:-1]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    resumed = penstock.resume(result.run_folder, timesteps=result.steps + 5 * UPDATE, quiet=True)
    assert resumed.steps >= result.steps + 5 * UPDATE
    # Random moves until the version that is left plays, in the fourth update. Nothing else was tried.
    assert {"episode/score/random", "episode/score/self"} <= newest_report(resumed).keys()
    assert "an opponent is left out" not in (result.run_folder / "run.log").read_text()


def test_a_run_goes_on_against_its_versions_if_processes_die(tmp_path):
    """The learner, an environment process and the one that writes checkpoints, killed in turn."""
    groups = ["env.0", "learner", "monitor", "env.1"]
    with killing(groups, tmp_path) as killed:
        result = train(tmp_path, opponents=["self"], num_workers=2, timesteps=60 * UPDATE, max_restarts=8)
    assert len(killed) > 1
    assert result.steps >= 60 * UPDATE
    assert last(result, "episode/score/self") >= 0.0
    # No version was missing.
    assert "an opponent is left out" not in (result.run_folder / "run.log").read_text()


@pytest.mark.parametrize(
    "settings",
    [
        {"algo": "dqn", "min_rows": 32, "capacity": 500, "mini_batch_size": 16, "num_steps": 8},
        {"algo": "appo", "num_workers": 2},
        {"model": "lstm", "memory_size": 8},
        {"inference": "onnx"},
    ],
    ids=["table", "overlapping", "memory", "onnx"],
)
def test_algorithms_and_policies_of_all_kinds(tmp_path, settings):
    values = {"opponents": ["self", "random"], "timesteps": 16 * UPDATE}
    without = {name: value for name, value in {**SMALL, **values}.items() if name != "epochs" or "algo" not in settings}
    result = penstock.train({**without, "save_interval": 1, "log_dir": str(tmp_path), **settings}, quiet=True)
    assert last(result, "episode/score/self") >= 0.0
    assert result.evaluation.episodes == 4


def test_the_critic_may_see_what_no_opponent_sees(tmp_path):
    env = {"env": "pettingzoo:tests.team_environments:Worth", "env_args": {"with_state": True}}
    result = train(tmp_path, **env, critic_obs=["state"], opponents=["self"], timesteps=10 * UPDATE)
    assert last(result, "episode/score/self") >= 0.0
    folder = RunFolder(result.run_folder)
    with Processes() as processes:
        prepared = open_trained(processes, folder, None, Given(), "evaluate").prepared
        given = with_opponents(prepared, folder.path).env.opponents.versions.settings.given
    assert "obs.state" in dict(prepared.profile.spaces.obs)
    assert "obs.observation" in given
    assert "obs.state" not in given


def test_masks_hold_for_opponents(tmp_path):
    """The environment fails if one is not kept to."""
    env = "pettingzoo:tests.team_environments:MaskedPair"
    assert last(train(tmp_path, env=env, opponents=["self"]), "episode/score/self") >= 0.0


def test_a_policy_is_exported_and_its_bundle_needs_no_opponent(tmp_path):
    result = train(tmp_path, opponents=["self"])
    bundle = penstock.export(result.run_folder, tmp_path / "bundle", observations=8)
    action = penstock.load_policy(bundle)([0.0, 1.0])
    assert action == penstock.load_policy(result.run_folder)([0.0, 1.0])


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"opponents": ["self"], "env": "CartPole-v1"}, EnvError, "--opponents play agents of environments of Petting"),
        ({"opponents": ["nobody"]}, ConfigError, "--opponents .*nobody: .*nobody is no run folder"),
        ({"opponent_rule": "hard"}, ConfigError, "--opponent_rule hard chooses among opponents; give --opponents"),
        ({"opponents": ["self", "random"], "opponent_rule": "latest"}, ConfigError, "is for --opponents self alone"),
        ({"opponents": ["a/one", "b/one"]}, ConfigError, "--opponents has two that are called one"),
        ({"opponents": ["self", "self"]}, ConfigError, "--opponents has two that are called self"),
        ({"opponents": ["self"], "runtime": "ray"}, ConfigError, "--opponents self does not go with --runtime ray"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, settings, error, text):
    with pytest.raises(error, match=text) as refused:
        train(tmp_path, **settings)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_another_run_with_other_spaces_is_refused(tmp_path):
    other = train(tmp_path / "other", env="pettingzoo:tests.team_environments:Lives", num_envs=3, opponents=None)
    with pytest.raises(ConfigError, match="that run has other spaces"):
        train(tmp_path / "own", opponents=[str(other.run_folder)])


def test_a_collector_has_no_opponents():
    with pytest.raises(ConfigError, match=r"a collector cannot take opponents=.*: opponents are those of a run"):
        penstock.ParallelEnvironmentCollector(DUEL, 1, num_envs=2, opponents=["random"])


def shown(result, checkpoint):
    """How often a version shows rock, paper and scissors, of 20,000 times."""
    policy, count = result.policy, 20_000
    arrays = load_to_play(checkpoint).arrays
    policy.backend.load({spec.name: arrays[spec.name] for spec in policy._spec.published()})
    noise = np.random.default_rng(0).gumbel(size=(count, 3)).astype(np.float32)
    action = np.zeros(count, np.int64)
    given = {"obs": np.ones((count, 1), np.float32), "noise": noise, "explore": np.ones(count, np.float32)}
    policy.backend.act(given, {"action": action})
    return np.bincount(action, minlength=3) / count


def exploited_at_last(tmp_path, rule):
    """What the best answer wins a round against each of the last ten versions, on average."""
    settings = {**SETTINGS, "env": "pettingzoo:examples.self_play:Cycle", "opponents": ["self"], "opponent_rule": rule}
    values = {**settings, "timesteps": 40_000, "runtime": "inline", "log_dir": str(tmp_path)}
    result = penstock.train(values, quiet=True)
    return np.mean([exploited(shown(result, path)) for path in list_checkpoints(result.run_folder)[-10:]])


def test_the_equilibrium_of_the_example_is_what_nobody_can_exploit():
    # Rock: -1/2 + 2/4. Paper: 1/4 - 1/4. Scissors: -2/4 + 1/2.
    assert (STAKES @ EQUILIBRIUM).tolist() == [0.0, 0.0, 0.0]
    # Against rock alone paper wins 1; against equal thirds rock wins (0 - 1 + 2) / 3.
    assert exploited(np.array([1.0, 0.0, 0.0])) == 1.0
    assert exploited(np.full(3, 1 / 3)) == pytest.approx(1 / 3)


@pytest.mark.nightly  # Half a minute. Shorter: the tests of ``tests/envs/test_opponents.py`` show who plays how often.
def test_against_all_versions_it_comes_to_rest_and_against_the_newest_it_goes_round(tmp_path):
    """Measured: 0.22 against all, 1.04 against the newest. The best answer to a pure choice wins 1 or 2."""
    assert exploited_at_last(tmp_path / "all", "uniform") < 0.45
    assert exploited_at_last(tmp_path / "newest", "latest") > 0.6
