import re

from penstock.config.commands import EvalOptions
from penstock.config.fields import fields_of
from penstock.config.help import options_help, resume_help, train_help
from penstock.config.schema import GROUPS, RunConfig


def test_every_setting_stands_in_the_help_with_its_range_and_default():
    text = train_help([], 200)
    for field in fields_of(RunConfig):
        assert re.search(rf"--{field.name}\s", text)
    assert "a number from 0 to 1; default 0.2" in text
    assert "default 64,64" in text
    assert "default none" in text


def test_the_settings_of_a_run_stand_in_groups():
    text = train_help([], 80)
    games = text.partition("\nGames that connect\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  --(\w+)", games, re.MULTILINE) == [
        "host",
        "port",
        "tcp_port",
        "token_file",
        "idle_seconds",
        "keep_episodes",
    ]
    titles = re.findall(r"^\S.*$", text, re.MULTILINE)
    assert titles[:3] == ["Name of the run", "Preset and file", "Environment and algorithm"]
    assert titles[2:-1] == [group.title for group in GROUPS]
    assert titles[-1] == "Algorithm: ppo"
    assert len(titles) == 15


def test_the_settings_of_an_algorithm_begin_with_its_own():
    settings = re.findall(r"^  --(\w+)", train_help([], 80).partition("Algorithm: ppo\n")[2], re.MULTILINE)
    assert settings[:2] == ["epochs", "clip_param"]
    assert settings.index("lr") < settings.index("optimizer")


def test_the_algorithm_that_is_named_is_shown():
    assert "--clip_param" in train_help([], 80)
    for argv in (["--algo", "a2c"], ["--algo=a2c"]):
        assert "--clip_param" not in train_help(argv, 80)


def test_the_algorithm_of_a_preset_and_of_a_file_is_shown_and_the_last_flag_wins(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('algo = "a2c"\n')
    preset = ["--preset", "sac-pendulum"]
    assert "Algorithm: sac" in train_help([*preset, "--help"], 80)
    assert "Algorithm: a2c" in train_help([*preset, f"--config={file}", "--help"], 80)
    assert "Algorithm: dqn" in train_help([*preset, "--algo", "ppo", "--algorithm=dqn", "--help"], 80)
    assert "Algorithm: ppo" in train_help(["--num_envs", "--help"], 80)


def test_help_fits_a_narrow_terminal():
    for width in (40, 80):
        assert max(map(len, train_help([], width).splitlines())) <= width


def test_positionals_have_no_dashes():
    text = options_help(EvalOptions, 80)
    assert "  RUN" in text
    assert not re.search(r"--run\s", text)


def test_what_a_resume_can_change_stands_in_its_help():
    text = resume_help(200)
    assert all(
        re.search(rf"--{name}\s", text) for name in ("checkpoint", "log_dir", "num_workers", "timesteps", "NAME")
    )
    assert not re.search(r"--(env|seed|num_envs|vector_env)\s", text)
    assert len(re.findall(r"--log_dir\s", text)) == 1
