"""`penstock compare`: on logs made by hand, whose figures are worked out here, and on two real runs."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import matplotlib.image
import numpy as np
import pytest

import penstock
from penstock.cli import main
from penstock.config.schema import RunConfig
from penstock.config.sources import from_mapping
from penstock.errors import ConfigError, RunFolderError
from penstock.metrics.jsonl import JsonLines
from penstock.metrics.report import Report
from penstock.saved_runs.comparison import as_json, as_table, compare, read_sides, save_picture
from penstock.saved_runs.comparison.bootstrap import difference, estimate, resampled_means
from penstock.saved_runs.comparison.curves import training_curve
from penstock.saved_runs.comparison.measures import _idle, band
from penstock.saved_runs.comparison.picture import draw
from penstock.saved_runs.comparison.sides import ComparedRun
from penstock.saved_runs.launches import add_launch
from penstock.saved_runs.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("shared_templates")


def update(number, returns=(), **values):
    """The report of an update: 100 steps and one second each. ``returns`` are those of all episodes so far."""
    named = {"throughput/steps_per_second": 100.0, "idle/env.0": 0.2, "idle/env.1": 0.4, "idle/learner": 0.5}
    if returns:
        named |= {"rollout/return_mean": float(np.mean(returns)), "rollout/episodes": float(len(returns))}
    return Report(number, 100 * number, float(number), named | values)


def run_of(log_dir, name, reports, **settings):
    """A run folder with this log."""
    folder = RunFolder(log_dir / name)
    folder.path.mkdir(parents=True)
    folder.write_config(from_mapping({"env": "CartPole-v1", **settings}))
    log = JsonLines(folder.path)
    for report in reports:
        log.write(report)
    log.close()
    return str(folder.path)


def growing(updates, scale, step_s=1.0):
    """A log in which update n ends the one episode number n, of return ``scale * n``."""
    reports = []
    for number in range(1, updates + 1):
        ended = [scale * episode for episode in range(1, number + 1)]
        reports.append(update(number, ended)._replace(time_s=step_s * number, returns=[ended[-1]]))
    return reports


def compared(*words, log_dir="."):
    return compare(read_sides(words, log_dir))


def test_returns_are_compared_at_the_step_and_at_the_second_that_both_have_reached(tmp_path):
    # After 400 steps: mean of 1..4 = 2.5 against 10 times that. B takes half the time: by 2 s
    # it has done its 4 updates, and A has done 2, whose mean is 1.5.
    a = run_of(tmp_path, "a", growing(6, 1.0))
    b = run_of(tmp_path, "b", growing(4, 10.0, step_s=0.5))
    found = compared(a, b)
    assert found.returns == "training"
    steps, seconds = found.measure("return_at_equal_steps"), found.measure("return_at_equal_wall_time")
    assert (steps.at, seconds.at) == (400.0, 2.0)
    assert [one.value for one in steps.sides] == [2.5, 25.0]
    assert [one.value for one in steps.differences] == [22.5]
    assert [one.value for one in seconds.sides] == [1.5, 25.0]
    assert [one.value for one in found.measure("steps_per_second").sides] == [100.0, 200.0]
    for one, (least, most) in zip(steps.sides, [(1, 4), (10, 40)], strict=True):
        assert least <= one.low < one.value < one.high <= most


def test_steps_are_those_that_the_environments_gave_also_if_they_were_dropped(tmp_path):
    # After 1 s: 100 rows learned. After 2 s: 200 learned, 60 + 40 dropped. So B has taken 300 steps.
    later = update(2, [1.0], **{"rows/stale": 60.0, "rows/spoilt": 40.0})
    judged = Report(2, 200, 2.0, {"eval/return_mean": 1.0})
    a, b = (
        run_of(tmp_path, "a", [update(n, [1.0]) for n in (1, 2, 3)]),
        run_of(tmp_path, "b", [update(1), later, judged]),
    )
    found = compared(a, b)
    assert [report.steps for report in found.sides[1].runs[0].reports] == [100, 300, 300]
    assert found.measure("return_at_equal_steps").at == 300.0
    assert [one.value for one in found.measure("steps_per_second").sides] == [100.0, 150.0]


def test_idle_time_is_the_mean_over_nodes_of_a_kind_and_over_the_seconds_of_each_report(tmp_path):
    # env: (0.2 + 0.4) / 2 for 1 s, then (0.8 + 1.0) / 2 for 3 s: (0.3 + 2.7) / 4.
    later = update(2, [1.0], **{"idle/env.0": 0.8, "idle/env.1": 1.0})._replace(time_s=4.0)
    a = run_of(tmp_path, "a", [update(1, [1.0]), later])
    b = run_of(tmp_path, "b", [update(1, [1.0], **{"idle/policy.0": 0.1})])
    found = compared(a, b)
    assert found.measure("idle/env").sides[0].value == pytest.approx(0.75)
    assert found.measure("idle/policy").sides[0] is None
    assert found.measure("idle/policy").sides[1].value == pytest.approx(0.1)
    assert found.measure("idle/policy").differences == (None,)
    assert "idle: policy" in as_table(found)


def test_the_time_of_a_clones_origin_counts_for_none_of_its_idle_time():
    """Its clock goes on from there. How much of its first report is its own is not known."""
    reports = [update(1, [1.0], **{"idle/env.0": 0.9, "idle/env.1": 0.9})._replace(time_s=1000.0)]
    reports += [update(2, [1.0], **{"idle/env.0": 0.25, "idle/env.1": 0.25})._replace(time_s=1002.0)]
    run = ComparedRun(Path(), RunConfig(env="X"), [SimpleNamespace(begin=5_000)], reports, None)
    assert _idle(run)["env"] == 0.25
    assert _idle(run._replace(parts=[SimpleNamespace(begin=0)]))["env"] == pytest.approx((900 + 0.5) / 1002)


def test_a_side_of_several_runs_is_their_mean_and_its_interval_is_over_runs(tmp_path):
    for seed in range(3):
        run_of(tmp_path / "many", f"seed{seed}", growing(2, 1.0 + seed), seed=seed)
    single = run_of(tmp_path, "single", growing(2, 1.0))
    found = compared(str(tmp_path / "many"), single)
    # Each run's mean of two episodes is 1.5 times its scale: 1.5, 3 and 4.5.
    (many, one) = found.measure("return_at_equal_steps").sides
    assert many.value == 3.0
    assert 1.5 <= many.low < 3.0 < many.high <= 4.5
    assert one.value == 1.5
    listed = ",".join(str(tmp_path / "many" / f"seed{seed}") for seed in range(3))
    assert compared(listed, single).measures == found.measures
    rates = found.measure("steps_per_second")
    assert rates.sides[0].low is not None
    assert rates.sides[1].low is None, "one run gives no interval of its speed"
    assert rates.differences[0].low is None


def test_the_commits_of_the_users_code_are_named_if_they_are_known(tmp_path):
    for seed, changed in ((0, False), (1, False), (2, True)):
        path = run_of(tmp_path / "many", f"seed{seed}", growing(2, 1.0), seed=seed)
        state = {"path": "/x", "commit": "0123456789abcdef", "changed": changed, "diff": None}
        line = {"code": {"folder": "code/0", "repositories": [state]}}
        (Path(path) / "launches.jsonl").write_text(json.dumps(line) + "\n")
    other = run_of(tmp_path, "other", growing(2, 1.0))
    found = compared(str(tmp_path / "many"), other)
    first, second = as_table(found).splitlines()[1:3]
    assert first.endswith("; own code: commit 0123456789ab or commit 0123456789ab with changes")
    assert "own code" not in second
    sides = json.loads(as_json(found))["sides"]
    assert [run["code"] and run["code"]["folder"] for side in sides for run in side["runs"]] == ["code/0"] * 3 + [None]


def test_evaluations_are_compared_where_every_run_has_them(tmp_path):
    def evaluation(number, mean, **values):
        named = {"eval/return_mean": mean, **values}
        return Report(number, 100 * number, float(number), named, returns=[mean - 1, mean + 1])

    logs = {
        name: [
            *growing(3, 1.0),
            evaluation(2, mean),
            evaluation(3, 2 * mean),
            evaluation(3, 99.0, **{"eval/final": 1.0}),
        ]
        for name, mean in (("a", 5.0), ("b", 7.0))
    }
    paths = [run_of(tmp_path, name, log) for name, log in logs.items()]
    found = compared(*paths)
    assert found.returns == "evaluation"
    assert [one.value for one in found.measure("return_at_equal_steps").sides] == [10.0, 14.0]
    final = found.measure("final_evaluation")
    assert [one.value for one in final.sides] == [99.0, 99.0]
    assert final.sides[0].low == 98.0
    only = run_of(tmp_path, "c", growing(3, 1.0))
    assert compared(paths[0], only).returns == "training"
    assert compared(paths[0], only).measure("final_evaluation").sides[1] is None
    # One that was resumed and interrupted was not evaluated at its end.
    resumed = run_of(tmp_path, "d", [*logs["a"], *growing(5, 1.0)[3:]])
    assert compared(paths[0], resumed).measure("final_evaluation").sides[1] is None


def test_a_mean_whose_episodes_the_log_does_not_hold_has_no_interval(tmp_path):
    # Of a log without returns, and of one in which an episode is missing.
    old = [update(1, [1.0, 2.0, 3.0])]
    lost = [update(1, [1.0, 2.0, 3.0])._replace(returns=[2.0, 3.0])]
    found = compared(run_of(tmp_path, "old", old), run_of(tmp_path, "lost", lost))
    for one in found.measure("return_at_equal_steps").sides:
        assert one == (2.0, None, None)


def test_the_episodes_of_a_mean_are_the_latest_hundred(tmp_path):
    ended = [float(number) for number in range(150)]
    reports = [
        update(1, ended[:80])._replace(returns=ended[:80]),
        update(2, **{"rollout/return_mean": np.mean(ended[50:]), "rollout/episodes": 150.0})._replace(
            returns=ended[80:]
        ),
    ]
    (side, _) = read_sides([run_of(tmp_path, "a", reports), run_of(tmp_path, "b", reports)], tmp_path)
    first, last = training_curve(side.runs[0]).points
    assert first.episodes.tolist() == ended[:80]
    assert last.episodes.tolist() == ended[50:]


def test_resampled_means_are_those_of_samples_with_replacement():
    # Two elements: both, or twice the same one: means 0, 1/2 and 1 with probabilities 1/4, 1/2 and 1/4.
    means = resampled_means(np.array([0.0, 1.0]), 40_000, np.random.default_rng(0))
    values, counts = np.unique(means, return_counts=True)
    assert values.tolist() == [0.0, 0.5, 1.0]
    assert (counts / len(means)).tolist() == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_the_interval_of_a_large_sample_is_that_of_the_normal_distribution():
    # The mean of 400 values of standard deviation 2 deviates by 2 / sqrt(400) = 0.1, a difference by sqrt(2) times it.
    sample = np.random.default_rng(1).normal(5.0, 1.0, 400)
    sample = 5.0 + 2.0 * (sample - sample.mean()) / sample.std()
    found = estimate(5.0, sample, 20_000, np.random.default_rng(2))
    assert (found.low, found.high) == pytest.approx((5 - 1.96 * 0.1, 5 + 1.96 * 0.1), abs=0.01)
    apart = difference(0.0, sample, sample, 20_000, np.random.default_rng(3))
    assert (apart.low, apart.high) == pytest.approx((-0.277, 0.277), abs=0.015)


def test_a_large_sample_is_resampled_in_parts():
    sample = np.zeros((1 << 20) + 1)
    assert resampled_means(sample, 3, np.random.default_rng(0)).tolist() == [0.0] * 3


def test_the_same_runs_give_the_same_answer(tmp_path):
    a, b = (run_of(tmp_path, name, growing(5, scale)) for name, scale in (("a", 1.0), ("b", 2.0)))
    assert compared(a, b).measures == compared(a, b).measures


def test_an_interval_is_the_same_beside_one_and_beside_two_other_sides(tmp_path):
    a, b, c = (run_of(tmp_path, name, growing(5, scale)) for name, scale in (("a", 1.0), ("b", 2.0), ("c", 3.0)))
    two, three, turned = compared(a, b), compared(a, c, b), compared(b, a)
    for name in ("return_at_equal_steps", "return_at_equal_wall_time"):
        first, second = two.measure(name).sides
        assert first.low < first.value < first.high
        assert three.measure(name).sides[::2] == (first, second)
        assert three.measure(name).differences[1] == two.measure(name).differences[0]
        assert turned.measure(name).sides == (second, first)


def test_a_dash_is_explained_below_the_table(tmp_path):
    # By 1 s, when A has ended, B has ended no episode. Only B has a policy node, and A alone was judged at its end.
    judged = Report(1, 100, 1.0, {"eval/return_mean": 3.0, "eval/final": 1.0})
    a = run_of(tmp_path, "a", [*growing(1, 1.0), judged])
    late = [report._replace(time_s=4.0 + report.update) for report in growing(3, 1.0)[1:]]
    b = run_of(tmp_path, "b", [update(1, **{"idle/policy.0": 0.1})._replace(time_s=4.0), *late])
    said = as_table(compared(a, b)).splitlines()
    (row,) = [line for line in said if line.startswith("return after 1.0 s")]
    assert row.split()[-2:] == ["-", "-"]
    why = "-: a run of the side had not reported it by then; was not evaluated at its end; reported no such node."
    assert said[-2] == why
    assert not any(line.startswith("-: ") for line in as_table(compared(a, a)).splitlines())


def test_the_picture_holds_each_return_until_the_next_report_as_the_table_does(tmp_path):
    found = compared(*(run_of(tmp_path, name, growing(4, scale)) for name, scale in (("a", 1.0), ("b", 2.0))))
    (line, *_) = draw(found).axes[0].get_lines()
    assert line.get_drawstyle() == "steps-post"


def test_a_band_ends_where_the_first_run_of_a_side_ends(tmp_path):
    runs = [run_of(tmp_path / "s", str(count), growing(count, 1.0), seed=count) for count in (300, 400)]
    found = compared(str(tmp_path / "s"), runs[0])
    drawn = band(found.curves[0], "steps")
    assert len(drawn.positions) == 200
    assert (drawn.positions[0], drawn.positions[-1]) == (100.0, 30_000.0)
    assert (drawn.low <= drawn.values).all()
    assert (drawn.values <= drawn.high).all()


def test_the_json_and_the_table_hold_every_measure(tmp_path):
    sides = [
        run_of(tmp_path, name, growing(4, scale), algo="ppo") for name, scale in (("a", 1.0), ("b", 2.0), ("c", 3.0))
    ]
    found = compared(*sides)
    body = json.loads(as_json(found))
    assert [side["runs"][0]["path"] for side in body["sides"]] == sides
    assert [side["interval_over"] for side in body["sides"]] == ["episodes"] * 3
    assert body["return_at_equal_steps"]["at"] == 400
    assert [one["value"] for one in body["return_at_equal_steps"]["differences"]] == [2.5, 5.0]
    assert body["idle/env"]["sides"][0]["value"] == pytest.approx(0.3)
    table = as_table(found)
    assert "B - A" in table
    assert "C - A" in table
    assert "return after 400 steps" in table
    assert "+2.5 [" in table
    assert "idle: learner" in table


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"env": "Pendulum-v1"}, "environment CartPole-v1 (side A) and Pendulum-v1 (side B)"),
        ({"wrap": ["gymnasium.wrappers:TimeAwareObservation"]}, "wrappers none (side A) and "),
        ({"env_args": {"sutton_barto_reward": True}}, "arguments none (side A) and "),
    ],
)
def test_runs_of_different_tasks_are_refused_in_one_line(tmp_path, second, says):
    paths = [run_of(tmp_path, "a", growing(1, 1.0)), run_of(tmp_path, "b", growing(1, 1.0), **second)]
    with pytest.raises(ConfigError, match="runs of different tasks cannot be compared") as error:
        compared(*paths)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_sides_that_make_no_sense_are_refused(tmp_path):
    a = run_of(tmp_path, "a", growing(1, 1.0))
    b = run_of(tmp_path, "b", growing(1, 1.0), algo="a2c")
    silent = run_of(tmp_path, "silent", [])
    fresh = run_of(tmp_path, "fresh", [update(1)])
    for words, kind, says in (
        ([a], ConfigError, "takes 2 to 26 sides, not 1"),
        ([f"{a},{a}", b], ConfigError, "side A names a run twice"),
        ([",", b], ConfigError, "side A names no run: ,$"),
        ([f"{a},{b}", a], ConfigError, "side A holds runs of a2c and ppo"),
        ([a, silent], RunFolderError, "has reported no update yet"),
        ([a, fresh], RunFolderError, "no episode of run .* has ended yet"),
        ([a, "nothing"], RunFolderError, "there is no run nothing"),
        ([f"{a},{tmp_path}", b], RunFolderError, "is a folder of runs, and commas join runs"),
    ):
        with pytest.raises(kind, match=says):
            compared(*words, log_dir=tmp_path)


def test_the_picture_is_written_in_the_format_of_its_ending(tmp_path):
    for seed in range(2):
        run_of(tmp_path / "a", f"{seed}", growing(40, 1.0), seed=seed)
    found = compared(str(tmp_path / "a"), run_of(tmp_path, "b", growing(50, 2.0)))
    save_picture(found, tmp_path / "it.png")
    pixels = matplotlib.image.imread(tmp_path / "it.png")
    assert pixels[..., :3].std() > 0.05, "the picture is blank"
    save_picture(found, tmp_path / "it.svg")
    assert (tmp_path / "it.svg").read_text().startswith("<?xml")
    with pytest.raises(RunFolderError, match=r"cannot write .*; give another --plot"):
        save_picture(found, tmp_path / "nowhere" / "it.png")


def test_two_real_runs_are_compared_on_the_command_line(tmp_path, capfd):
    settings = {"env": "CartPole-v1", "num_envs": 4, "num_workers": 1, "log_dir": str(tmp_path), "eval_episodes": 10}
    ppo = penstock.train({**settings, "timesteps": 3072, "num_steps": 128}, quiet=True)
    a2c = penstock.train({**settings, "algo": "a2c", "timesteps": 2000}, quiet=True)
    capfd.readouterr()
    picture = tmp_path / "compared.png"
    words = [ppo.run_folder.name, "latest", "--log_dir", str(tmp_path)]
    assert main(["compare", *words, "--plot", str(picture)]) == 0
    said = capfd.readouterr().out
    assert f"A  {ppo.run_folder.name} (ppo, seed 0): 3,072 steps" in said
    assert f"B  {a2c.run_folder.name} (a2c, seed 0): {a2c.steps:,} steps" in said
    assert f"return after {a2c.steps:,} steps" in said
    assert f"picture: {picture}" in said
    assert picture.stat().st_size > 10_000
    assert main(["compare", *words, "--json"]) == 0
    body = json.loads(capfd.readouterr().out)
    final = body["final_evaluation"]["sides"][0]
    assert final["value"] == ppo.evaluation.mean_return
    assert final["low"] <= final["value"] <= final["high"]
    # The log holds the returns of exactly the episodes behind each mean.
    for curve in (training_curve(side.runs[0]) for side in read_sides([str(ppo.run_folder), str(a2c.run_folder)], ".")):
        assert len(curve.points) > 2
        for point in curve.points:
            assert math.isclose(point.value, point.episodes.mean())
    assert main(["compare", words[0]]) == 2
    assert main(["compare", *words, "--plot", "compared"]) == 2
    assert "--plot takes a file that ends in .png, .svg or .pdf, not compared" in capfd.readouterr().err


def test_episode_metrics_are_compared_at_the_step_that_both_have_reached(tmp_path):
    def winning(updates, share):
        named = [{"episode/won": share * number} for number in range(1, updates + 1)]
        return [update(number, [1.0], **values) for number, values in enumerate(named, 1)]

    # Both have reached update 3. A: 3 * 0.1; B: 3 * 0.2. The laps of A alone.
    first = [report._replace(values={**report.values, "episode/laps:max": 7.0}) for report in winning(4, 0.1)]
    a = run_of(tmp_path, "a", first, episode_metrics=["won", "laps:max"])
    b = run_of(tmp_path, "b", winning(3, 0.2), episode_metrics=["won"])
    found = compared(a, b)
    won, laps = found.measure("episode/won"), found.measure("episode/laps:max")
    assert won.at == 300.0
    assert [one.value for one in won.sides] == pytest.approx([0.3, 0.6])
    assert [one.value for one in won.differences] == pytest.approx([0.3])
    assert (laps.sides[0].value, laps.sides[1], laps.differences) == (7.0, None, (None,))
    table = as_table(found)
    (row,) = [line for line in table.splitlines() if line.startswith("won after 300 steps, in training")]
    assert row.split()[-3:] == ["0.3", "0.6", "+0.3"]
    assert "laps:max after 300 steps, in training" in table
    assert json.loads(as_json(found))["episode/won"]["at"] == 300.0


def test_a_side_of_several_learners_says_so(tmp_path):
    several = {"learners": 2, "exchange": "hogwild", "pace": "async", "sync_mode": "non_blocking"}
    runs = [
        run_of(tmp_path, name, growing(3, 1.0), num_workers=2, **more) for name, more in (("a", {}), ("b", several))
    ]
    said = as_table(compared(*runs))
    assert "A  a (ppo, seed 0): " in said
    assert "B  b (ppo, 2 learners, hogwild, async; seed 0): " in said
    mixed = as_table(compared(",".join(runs), runs[0]))
    assert "A  2 runs of ppo (1 learner or 2 learners, hogwild, async; seeds 0, 0): " in mixed
    first, second = (side["runs"][0] for side in json.loads(as_json(compared(*runs)))["sides"])
    assert (first["learners"], second["learners"]) == (1, 2)
    assert (second["exchange"], second["pace"], second["compress"]) == ("hogwild", "async", "none")


def test_a_side_whose_learners_a_resume_has_changed_says_which_part_had_which(tmp_path):
    first = {"learners": 2, "exchange": "allreduce", "pace": "sync", "num_workers": 2}
    then = {**first, "exchange": "gossip", "num_workers": 4}
    runs = [run_of(tmp_path, name, growing(3, 1.0), **then) for name in ("a", "b")]
    changed = RunFolder(tmp_path / "b")
    add_launch(changed, None, from_mapping({"env": "CartPole-v1", **first}).run, 0)
    add_launch(changed, "update-00000001", from_mapping({"env": "CartPole-v1", **then}).run, 100)
    said = as_table(compared(*runs))
    assert "A  a (ppo, 4 processes; 2 learners, gossip, sync; seed 0): " in said
    learners = "2 learners, allreduce, sync, to 100 steps; then 2 learners, gossip, sync"
    assert f"B  b (ppo, 2 processes, to 100 steps; then 4 processes; {learners}; seed 0): " in said
    whole, parted = (side["runs"][0] for side in json.loads(as_json(compared(*runs)))["sides"])
    assert [(part["begin"], part["exchange"]) for part in whole["parts"]] == [(0, "gossip")]
    assert [(part["begin"], part["exchange"]) for part in parted["parts"]] == [(0, "allreduce"), (100, "gossip")]
    assert parted["exchange"] == "gossip"


def test_a_side_with_policy_nodes_or_another_number_of_processes_says_so(tmp_path):
    node = {"policy_placement": "node", "max_batch": 64}
    runs = [
        run_of(tmp_path, name, growing(3, 1.0), num_workers=workers, **more)
        for name, workers, more in (("a", 2, {}), ("b", 2, node), ("c", 1, {}))
    ]
    same = as_table(compared(runs[0], runs[1]))
    assert "A  a (ppo, seed 0): " in same
    assert "B  b (ppo, policy node, max_batch 64; seed 0): " in same
    other = as_table(compared(*runs))
    assert "A  a (ppo, 2 processes; seed 0): " in other
    assert "B  b (ppo, 2 processes; policy node, max_batch 64; seed 0): " in other
    assert "C  c (ppo, 1 process; seed 0): " in other
    mixed = as_table(compared(",".join(runs[:2]), runs[0]))
    assert "A  2 runs of ppo (policy in place or policy node, max_batch 64; seeds 0, 0): " in mixed
    second = json.loads(as_json(compared(*runs)))["sides"][1]["runs"][0]
    assert (second["policy_placement"], second["max_batch"], second["num_workers"]) == ("node", 64, 2)
