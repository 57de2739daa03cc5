import re

import pytest

from penstock.config.commands import EvalOptions, MetricsOptions, PlotOptions, ResumeOptions, RetrainOptions
from penstock.config.flags import (
    config_from_arguments,
    options_from_arguments,
    resume_from_arguments,
    train_from_arguments,
    tune_from_arguments,
)
from penstock.errors import ConfigError


def config(*argv):
    return config_from_arguments(argv)


def test_underscores_dashes_and_equals_signs_are_the_same():
    expected = config("--env", "X", "--mini_batch_size", "32")
    assert config("--env", "X", "--mini-batch-size", "32") == expected
    assert config("--env=X", "--mini-batch-size=32") == expected
    assert expected.algorithm.mini_batch_size == 32


def test_the_published_command_line():
    line = (
        "--env Pendulum-v1 --num_workers 4 --timesteps 1000000 --lr 3e-4 --gamma 0.99 --gae_lambda 0.95 "
        "--clip_param 0.2 --value_coef 0.5 --entropy_coef 0.01 --max_grad_norm 0.5 --device cpu --distributed False "
        "--log_dir ./logs --save_interval 50 --log_interval 10 --seed 0"
    )
    got = config(*line.split())
    assert got.run.num_workers == 4
    assert got.algorithm == config("--env", "Pendulum-v1").algorithm


def test_distributed_stands_for_the_runtime():
    assert config("--env", "X", "--distributed", "True").run.runtime == "ray"
    assert config("--env", "X", "--runtime", "ray", "--address", "auto").run.address == "auto"
    assert config("--env", "X", "--distributed", "False").run.runtime == "local"


@pytest.mark.parametrize(("workers", "envs"), [(1, 8), (3, 9), (4, 8), (5, 10), (16, 16)])
def test_lanes_that_are_not_given_suit_the_workers(workers: int, envs: int):
    assert config("--env", "X", "--num_workers", str(workers)).run.num_envs == envs


def test_negative_numbers_are_values():
    assert config("--env", "X", "--target_return", "-200").run.target_return == -200.0


def test_booleans_with_and_without_a_value():
    assert config("--env", "X", "--vector_env").run.vector_env is True
    assert config("--env", "X", "--vector_env", "False").run.vector_env is False
    assert config("--vector_env", "--env", "X").run.vector_env is True
    assert config("--env", "X", "--normalize_obs").algorithm.normalize_obs is True


def test_of_a_flag_given_twice_the_last_counts():
    assert config("--env", "X", "--seed", "1", "--seed", "2").run.seed == 2


def test_flags_win_over_the_file_and_the_file_over_the_preset(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("lr = 0.5\nnum_steps = 64\n")
    preset = config("--preset", "cartpole")
    got = config("--lr", "0.25", "--config", str(file), "--preset", "cartpole")
    assert got.algorithm.lr == 0.25
    assert got.algorithm.num_steps == 64
    assert preset.algorithm.num_steps != 64
    assert got.run.env == preset.run.env


def test_the_algorithm_may_be_named_in_the_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('env = "X"\nalgo = "a2c"\n')
    assert config("--config", str(file)).run.algo == "a2c"
    assert config("--config", str(file), "--algo", "ppo", "--clip_param", "0.1").algorithm.clip_param == 0.1


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--env", "X", "--lrr", "1"], r"unknown flag --lrr; did you mean --lr"),
        (["--env", "X", "--confg", "f"], r"unknown flag --confg; did you mean --config"),
        (["--env", "X", "--gamma", "2"], r"^--gamma takes a number from 0 to 1, not 2$"),
        (["--env", "X", "--num-envs", "0"], r"^--num-envs takes a whole number from 1 to 1,000,000, not 0$"),
        (["--env", "X", "--lr"], r"^--lr takes a number of at least 0, not True$"),
        (["--env", "X", "stray"], "unexpected argument 'stray'"),
        (["--env", "X", "--distributed", "maybe"], "--distributed takes True or False, not 'maybe'"),
        (["--env", "X", "-v"], "unexpected argument '-v'"),
        (["--config"], "--config needs a value"),
        (["--env"], "^--env needs a value: the name of an environment$"),
        (["--wrap", "--env", "X"], "^--wrap needs a value: module:Wrapper, separated by commas$"),
        (["--preset", "cartpol"], "did you mean cartpole"),
        (
            ["--preset", "halfcheetah", "--algo", "ppo"],
            "^preset halfcheetah is for --algo sac: ppo has no setting min_rows; leave out --algo ppo, or --preset",
        ),
    ],
)
def test_what_cannot_be_understood_is_one_line(argv, says):
    with pytest.raises(ConfigError, match=says) as refusal:
        config(*argv)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--sample", "2"], "unknown flag --sample; did you mean --samples, "),
        (["--schedulr", "pbt"], "unknown flag --schedulr; did you mean --scheduler, "),
        (["--serch", "lr=choice:1,2"], "unknown flag --serch; did you mean --search, "),
    ],
)
def test_a_misspelt_flag_of_tune_is_answered_with_its_own_flags(argv, says):
    with pytest.raises(ConfigError, match=says):
        tune_from_arguments(["--env", "X", *argv])


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--keep", "did you mean --keep_every, --keep_episodes, --keep_checkpoints[?]$"),
        ("--run_nam", "did you mean --run_name, "),
        ("--env_timeout_s", "did you mean --env_timeout, --env, "),
        ("--e", "did you mean --env, "),
    ],
)
def test_a_misspelt_flag_of_train_is_answered_with_those_that_begin_alike(flag, says):
    with pytest.raises(ConfigError, match=says):
        train_from_arguments(["--env", "X", flag, "1"])


@pytest.mark.parametrize("name", ["loss/policy", "episode/best lap", "a"])
def test_a_metric_is_asked_for_by_a_name_that_may_hold_spaces(name):
    assert options_from_arguments(MetricsOptions, ["RUN", name]).metric == name
    for wrong in ("", " ", " a"):
        with pytest.raises(ConfigError, match="METRIC takes the name of a metric"):
            options_from_arguments(MetricsOptions, ["RUN", wrong])


def test_options_of_other_commands():
    got = options_from_arguments(EvalOptions, ["runs/a b", "--episodes", "3", "--json"])
    assert (got.run, got.episodes, got.json, got.seed) == ("runs/a b", 3, True, None)
    # A bare boolean does not swallow the run that follows it.
    assert options_from_arguments(EvalOptions, ["--json", "latest"]).run == "latest"
    assert options_from_arguments(EvalOptions, ["--json", "False", "latest"]).json is False
    # As those of a run.
    spread = options_from_arguments(
        EvalOptions, ["latest", "--distributed", "--address", "auto", "--num_workers", "16"]
    )
    assert (spread.runtime, spread.distributed, spread.address, spread.num_workers) == (None, True, "auto", 16)
    assert options_from_arguments(EvalOptions, ["latest", "--runtime", "ray"]).runtime == "ray"
    assert options_from_arguments(PlotOptions, ["--logdir", "here", "--save_fig", "True"]).log_dir == "here"
    assert options_from_arguments(PlotOptions, ["latest"]).run == "latest"
    assert options_from_arguments(PlotOptions, []).run is None
    with pytest.raises(ConfigError, match="unexpected argument 'b'"):
        options_from_arguments(PlotOptions, ["a", "b"])


@pytest.mark.parametrize("every", ["90s", "0.5h", "10m", "05d"])
def test_a_retraining_is_repeated_after_a_time(every):
    assert options_from_arguments(RetrainOptions, ["a", "--experience", "b", "--every", every]).every == every


def test_a_setting_is_searched_or_given():
    search = ["--search", "lr=loguniform:1e-4:1e-2,mini_batch_size=choice:32,64"]
    assert tune_from_arguments(["--env", "X", *search, "--epochs", "2"])[1].algorithm.epochs == 2
    for flag in ("--lr", "--mini-batch-size"):
        with pytest.raises(ConfigError, match=rf"{flag} 1 and --search \w+=.* both say what \w+ is; leave out one"):
            tune_from_arguments(["--env", "X", *search, flag, "1"])


def test_of_a_flag_that_is_given_twice_the_last_counts_unless_it_adds():
    got = config("--env", "X", "--lr", "1", "--lr", "2", "--ignore_obs", "a.b", "--ignore-obs=c, d")
    assert (got.algorithm.lr, got.run.ignore_obs) == (2.0, ("a.b", "c", "d"))
    assert config("--env", "X").run.ignore_obs is None


def test_episode_metrics_are_named_once_each_and_are_not_too_many():
    named = config("--env", "X", "--episode_metrics", "won, best lap", "--episode_metrics", "TimeLimit.truncated")
    assert named.run.episode_metrics == ("won", "best lap", "TimeLimit.truncated")
    assert config("--env", "X", "--episode_metrics", "won,speed[m/s]").run.episode_metrics == ("won", "speed[m/s]")
    for given, says in (
        ("won,laps,won", "--episode_metrics names won twice; give each name once"),
        (",".join(f"m{number}" for number in range(33)), "--episode_metrics has 33 names; give at most 32"),
        ("won,,laps", "--episode_metrics takes names of at most 64 characters, .*, not nothing"),
        ("x" * 65, "--episode_metrics takes names of at most 64 characters, separated by commas"),
    ):
        with pytest.raises(ConfigError, match=says):
            config("--env", "X", "--episode_metrics", given)


@pytest.mark.parametrize(
    ("options", "argv", "says"),
    [
        (ResumeOptions, [], "RUN is missing"),
        (RetrainOptions, ["latest"], "--experience is missing: folder of kept episodes"),
        *(
            (RetrainOptions, ["a", "--experience", "b", "--every", never], f"--every takes a time .*, not {never}$")
            for never in ("0s", "00h", "0.00m")
        ),
        (ResumeOptions, ["a", "b"], "unexpected argument 'b'"),
        (EvalOptions, ["a", "--distributed", "maybe"], "--distributed takes True or False, not 'maybe'"),
        (ResumeOptions, ["a", "--run", "b"], "unknown flag --run"),
        (EvalOptions, ["a", "--episodes", "0"], "--episodes takes a whole number of at least 1, not 0"),
    ],
)
def test_options_that_cannot_be_understood(options, argv, says):
    with pytest.raises(ConfigError, match=says):
        options_from_arguments(options, argv)


def test_a_resume_takes_its_own_options_and_settings_of_the_run():
    options, settings = resume_from_arguments(
        ["--trace", "latest", "--logdir", "here", "--lr=1e-4", "--num-workers", "2"]
    )
    assert (options.run, options.log_dir, options.checkpoint) == ("latest", "here", None)
    assert {name: (given.value, given.label) for name, given in settings.items()} == {
        "trace": ("True", "--trace"),
        "lr": ("1e-4", "--lr"),
        "num_workers": ("2", "--num-workers"),
    }
    with pytest.raises(ConfigError, match="unexpected argument 'b'"):
        resume_from_arguments(["a", "b"])


@pytest.mark.parametrize(
    "argv", [["--wrap", "a:B", "--wrap=c:D", "--wrap", "e:F"], ["--wrap", "a:B,c:D", "--wrap", "e:F"]]
)
def test_wrappers_add_up_in_order(argv):
    assert [str(wrapping) for wrapping in config("--env", "X", *argv).run.wrap or ()] == ["a:B", "c:D", "e:F"]


def test_arguments_of_an_environment_are_json():
    got = config("--env", "X", "--env_args", '{"config": {"duration": 20}, "goal": null}').run.env_args
    assert got == {"config": {"duration": 20}, "goal": None}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--env_args", "{a: 1}"], "--env_args is not JSON: Expecting property name"),
        (
            ["--env_args", "[1]"],
            r"--env_args takes a table of keyword arguments, such as .* in JSON or .* in TOML, not \[1\]",
        ),
        (["--env_args", '{"a": NaN}'], "--env_args holds nan, which JSON cannot"),
        (["--wrap", "a:B,,c:D"], "--wrap takes module:Wrapper; .* not nothing"),
        (["--reward", " "], "--reward takes module:name of a function or a class"),
    ],
)
def test_what_shapes_an_environment_is_checked(argv, says):
    with pytest.raises(ConfigError, match=says) as refusal:
        config("--env", "X", *argv)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--wrap=a:B(size=84)", "--wrap takes module:Wrapper; one with arguments stands in a file"),
        ('--wrap={"use": "a:B", "arguments": {"size": 84}}', "--wrap takes module:Wrapper; one with arguments stands"),
        ("--wrap=", "--wrap takes module:Wrapper"),
        ("--reward=", "--reward"),
    ],
)
def test_what_is_no_name_of_a_wrapper_or_reward_is_refused(flag: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}"):
        config("--env", "X", flag)


def test_a_second_reward_does_not_take_the_place_of_the_first():
    # Two names in one text are refused where the reward is looked up.
    assert config("--env", "X", "--reward", "a:b", "--reward", "c:d").run.reward == "a:b,c:d"


def test_a_launch_has_a_name_besides_its_settings_and_says_which_of_them_it_gives(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("lr = 0.5\nnum_steps = 64\n")
    line = ["--run_name", "one", "--resume_if_exists", "--config", str(file), "--env=X", "--sync_mode", "auto"]
    options, launched, given = train_from_arguments([*line, "--lr", "0.25", "--log_dir", "runs"])
    assert (options.run_name, options.resume_if_exists) == ("one", True)
    assert launched == config("--config", str(file), "--env=X", "--lr", "0.25", "--log_dir", "runs")
    assert {name: str(setting.value) for name, setting in given.items()} == {
        "lr": "0.25",
        "num_steps": "64",
        "env": "X",
    }


@pytest.mark.parametrize("name", ["latest", ".hidden", "a/b", "..", "a b", "x.partial", "-x", "--help", "", "x" * 101])
def test_a_name_that_a_folder_of_a_run_cannot_have_is_refused(name):
    with pytest.raises(ConfigError, match=r"^--run_name takes letters, digits"):
        train_from_arguments(["--env", "X", f"--run_name={name}"])


def test_a_line_that_trains_can_be_drawn():
    drawn = config("--env", "X", "--run_name", "one", "--resume_if_exists", "--lr", "0.25")
    assert drawn == config("--env=X", "--lr=0.25")


def test_only_a_run_with_a_name_can_be_gone_on_with():
    with pytest.raises(ConfigError, match=r"^--resume_if_exists is for a run with a name; give --run_name NAME$"):
        train_from_arguments(["--env", "X", "--resume_if_exists", "true"])
