import json
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.config.sources import from_mapping
from penstock.saved_runs.card import write_card
from penstock.saved_runs.checkpoints import save_checkpoint
from penstock.saved_runs.launches import add_launch
from penstock.saved_runs.run_folder import RunFolder

CONFIG = from_mapping({"env": "Pendulum-v1", "num_workers": 2, "backend": "eager"})
EVALUATION = SimpleNamespace(mean_return=-153.24, std_return=80.0, mean_length=200.0, episodes=100, remark="")


def written(tmp_path, evaluation):
    folder = RunFolder.fresh(tmp_path / "my logs", "Pendulum-v1", "ppo")
    folder.make()
    facts = {"env": "X", "spaces": "", "algorithm": "ppo", "steps": 1, "update": 61, "return_mean": -150.0}
    save_checkpoint(folder.path, {"x": np.zeros(1)}, facts)
    folder.policy_path.write_bytes(b"onnx")
    folder.metrics_path.write_text("{}\n")
    write_card(folder, CONFIG, 999_424, 61, evaluation)
    return folder, folder.card_path.read_text()


def test_the_card_says_what_the_run_is_how_good_it_became_and_what_to_type(tmp_path):
    folder, text = written(tmp_path, EVALUATION)
    assert text.startswith(f"# {folder.name}\n")
    assert "return **-153.2** ± 80.0 over 100 greedy episodes" in text
    assert "999,424 of 1,000,000 steps, 61 updates" in text
    assert f"penstock eval '{folder.path}' --episodes 100" in text
    assert f"penstock resume '{folder.path}'" in text
    assert f"penstock plot '{folder.path}'" in text
    assert "update-00000061" in text
    assert "policy.onnx" in text


def test_the_card_names_the_table_where_there_is_a_file_of_it(tmp_path):
    folder, text = written(tmp_path, EVALUATION)
    assert "replay.table" not in text
    folder.table_path.write_bytes(b"rows")
    write_card(folder, CONFIG, 999_424, 61, EVALUATION)
    assert "`replay.table`: the replay table that a resume continues with" in folder.card_path.read_text()


def test_the_card_holds_the_whole_config(tmp_path):
    _, text = written(tmp_path, EVALUATION)
    config = text.partition("```toml\n")[2].partition("```")[0]
    assert from_mapping(tomllib.loads(config)) == CONFIG


def test_the_card_of_an_interrupted_run(tmp_path):
    _, text = written(tmp_path, None)
    assert "stopped before its end" in text


def test_the_card_of_a_run_from_games_names_no_evaluation(tmp_path):
    folder, _ = written(tmp_path, EVALUATION)
    config = from_mapping({"env": "gamecore://my_game:GameAgent", "algo": "appo", "port": 8000, "eval_episodes": 0})
    write_card(folder, config, 1_000_000, 61, None)
    text = folder.card_path.read_text()
    assert "not evaluated: games cannot be asked for episodes" in text
    assert "penstock eval" not in text
    assert f"penstock serve '{folder.path}'" in text


def test_the_card_names_what_shapes_the_environment(tmp_path):
    folder, text = written(tmp_path, EVALUATION)
    assert "Wrappers" not in text
    shape = {"wrap": ["a:B", "c:D"], "env_args": {"size": 5}, "reward": "m:shaped"}
    write_card(folder, from_mapping({**CONFIG.values(), **shape}), 999_424, 61, EVALUATION)
    text = folder.card_path.read_text()
    assert "| Wrappers, the first innermost | `a:B,c:D` |" in text
    assert '| Arguments | `{"size": 5}` |' in text
    assert "| Rewards learned from | `m:shaped`; returns below are the environment's own |" in text


def test_the_card_names_the_code_of_the_last_launch(tmp_path):
    folder, text = written(tmp_path, EVALUATION)
    assert "Own code" not in text
    assert "`code/`" not in text
    states = [
        {"path": "/x", "commit": "0123456789abcdef", "changed": changed, "diff": None} for changed in (False, True)
    ]
    lines = [{"code": {"folder": "code/0123", "repositories": [state]}} for state in states]
    folder.launches_path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    folder.code.mkdir()
    write_card(folder, CONFIG, 999_424, 61, EVALUATION)
    text = folder.card_path.read_text()
    assert "| Own code | commit 0123456789ab with changes; kept in `code/0123` |" in text
    assert "- `code/`: the modules of your own that it ran" in text


@pytest.mark.parametrize(
    ("asked", "steps", "text"),
    [
        (0, 1_000_000, "not evaluated (`--eval_episodes 0`)"),
        (10, 1_000_000, "not evaluated yet"),
        (10, 999, "stopped before its end, so not evaluated"),
    ],
)
def test_it_says_why_there_is_no_evaluation(tmp_path, asked: int, steps: int, text: str) -> None:
    folder = RunFolder(tmp_path)
    config = from_mapping({**CONFIG.values(), "timesteps": 1_000_000, "eval_episodes": asked})
    write_card(folder, config, steps, 61, None)
    assert f"| Result | {text}; " in folder.card_path.read_text()


def test_it_says_why_the_evaluation_failed(tmp_path):
    folder, _ = written(tmp_path, None)
    write_card(folder, CONFIG, 1_000_000, 61, None, unevaluated="the evaluation was given up: lane 0 | a hang")
    text = folder.card_path.read_text()
    assert "| Result | not evaluated: the evaluation was given up: lane 0 &#124; a hang |" in text


def test_a_card_without_a_checkpoint_offers_what_works_without_one(tmp_path):
    folder = RunFolder(tmp_path)
    write_card(folder, CONFIG, 0, 0, None, failure="no memory")
    commands = folder.card_path.read_text().partition("```sh\n")[2].partition("```")[0].splitlines()
    assert [line.split()[1] for line in commands] == ["train"]
    assert f"--config {folder.config_path} " in commands[0]


def test_the_card_names_the_file_of_deaths(tmp_path):
    folder, text = written(tmp_path, EVALUATION)
    assert "deaths.log" not in text
    folder.deaths.write_text("died")
    write_card(folder, CONFIG, 999_424, 61, EVALUATION)
    assert "- `deaths.log`: the tracebacks of processes that failed" in folder.card_path.read_text()


def test_the_card_names_several_learners(tmp_path):
    folder, text = written(tmp_path, EVALUATION)
    assert "| Learners |" not in text
    config = from_mapping({**CONFIG.values(), "learners": 2, "exchange": "allreduce", "pace": "sync"})
    write_card(folder, config, 999_424, 61, EVALUATION)
    assert "| Learners | 2 learners, allreduce, sync |" in folder.card_path.read_text()


def test_the_card_names_policy_nodes(tmp_path):
    folder, text = written(tmp_path, EVALUATION)
    assert "| Policy |" not in text
    config = from_mapping({**CONFIG.values(), "policy_placement": "node", "policy_nodes": 2, "max_wait": 0.002})
    write_card(folder, config, 999_424, 61, EVALUATION)
    assert "| Policy | 2 policy nodes, max_wait 0.002 |" in folder.card_path.read_text()


def test_the_card_of_a_resumed_run_says_which_part_had_which_learners(tmp_path):
    folder, _ = written(tmp_path, EVALUATION)
    first = from_mapping({**CONFIG.values(), "learners": 2, "exchange": "allreduce", "pace": "sync"})
    then = from_mapping({**first.values(), "exchange": "gossip", "policy_placement": "node"})
    add_launch(folder, None, first.run, 0)
    write_card(folder, first, 40_000, 3, EVALUATION)
    assert "| Learners | 2 learners, allreduce, sync |" in folder.card_path.read_text()
    assert "| Resumed |" not in folder.card_path.read_text()
    add_launch(folder, "update-00000003", then.run, 40_000)
    write_card(folder, then, 999_424, 61, EVALUATION)
    text = folder.card_path.read_text()
    assert "| Learners | 2 learners, allreduce, sync, to 40,000 steps; then 2 learners, gossip, sync |\n" in text
    assert "| Policy | in place, to 40,000 steps; then policy node |\n" in text
    assert "| Resumed | once, at 40,000 steps; `run.log` says which settings changed |\n" in text
    assert "Environment processes" not in text
    then = from_mapping({**then.values(), "num_workers": 4})
    add_launch(folder, "update-00000050", then.run, 800_000)
    # A resume that had nothing to do.
    add_launch(folder, "update-00000061", then.run, 999_424)
    write_card(folder, then, 999_424, 61, EVALUATION)
    text = folder.card_path.read_text()
    assert "| Resumed | 2 times, the last time at 800,000 steps; " in text
    assert "| Environment processes | 2 processes, to 800,000 steps; then 4 processes |\n" in text
