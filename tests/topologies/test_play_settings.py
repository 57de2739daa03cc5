"""What an evaluation plays is the same during a run and after it."""

from dataclasses import replace
from pathlib import Path

from penstock.evaluation import Asked, _plan
from penstock.planning import plan
from penstock.saved_runs.run_folder import RunFolder
from penstock.topologies import async_on_policy, evaluation
from penstock.trained import Trained
from tests.planned import prepared


def test_the_evaluator_the_players_and_a_run_that_is_opened_again_play_the_same() -> None:
    skips = {"bad_numbers": "skip", "sync_mode": "non_blocking"}
    found = prepared(num_envs=4, num_workers=2, eval_interval=5, seed=3, episode_metrics=["won", "won:max"], **skips)
    during = async_on_policy.build(plan(found, Path("run"), quiet=True)).node("evaluator").settings.play
    asked = Asked(8, 3, None, quiet=True, players=2, runtime="local")
    after = evaluation.build(_plan(found, {}, asked, RunFolder(Path("run")))).node("player.0").settings.play
    opened = Trained(found, {}, Path("update-00000001")).play_settings(found.env, 1, 3)
    assert (during.lanes, after.lanes, opened.lanes) == (4, 1, 1)
    assert replace(during, lanes=1) == after == opened
    assert (after.bad_numbers, after.episode_metrics) == ("skip", ("won",))
