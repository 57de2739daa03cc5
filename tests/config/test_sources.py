import tomllib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.algorithm_lookup import find_algorithm
from penstock.config.fields import Wrapping, fields_of
from penstock.config.schema import RunConfig
from penstock.config.sources import (
    Setting,
    from_mapping,
    from_toml,
    line_of,
    preset_names,
    preset_path,
    preset_texts,
    to_toml,
    with_changes,
)
from penstock.config.whole import Config
from penstock.errors import ConfigError
from penstock.registry import ALGORITHMS


def test_defaults_are_those_of_the_product():
    config = from_mapping({"env": "Pendulum-v1"})
    run, ppo = config.run, config.algorithm
    assert (run.num_envs, run.num_workers, run.timesteps, run.save_interval, run.log_interval) == (
        8,
        "auto",
        1_000_000,
        50,
        10,
    )
    assert (run.seed, run.device, run.log_dir, run.sync_mode) == (0, "cpu", "./logs", "auto")
    assert (ppo.num_steps, ppo.epochs, ppo.mini_batch_size, ppo.lr, ppo.gamma) == (2048, 10, 64, 3e-4, 0.99)
    assert (ppo.gae_lambda, ppo.clip_param, ppo.value_coef, ppo.entropy_coef, ppo.max_grad_norm) == (
        0.95,
        0.2,
        0.5,
        0.01,
        0.5,
    )


@pytest.mark.parametrize(
    ("algo", "env"),
    [("ppo", "Pendulum-v1"), ("sac", "Pendulum-v1"), ("bc", "Pendulum-v1")]
    + [(algo, "CartPole-v1") for algo in ("dqn", "apex", "r2d2")],
)
def test_an_environment_that_is_left_out_has_actions_that_the_algorithm_serves(algo: str, env: str):
    assert from_mapping({"algo": algo}).run.env == env
    assert from_mapping({"algo": algo, "env": "X"}).run.env == "X"


@pytest.mark.parametrize(
    ("workers", "envs"), [(1, 8), (2, 8), (3, 9), (4, 8), (5, 10), (7, 14), (8, 8), (9, 9), (16, 16)]
)
def test_environments_that_are_left_out_are_the_least_multiple_of_the_workers_from_eight_on(workers: int, envs: int):
    assert from_mapping({"env": "X", "num_workers": workers}).run.num_envs == envs
    assert from_mapping({"env": "X", "num_workers": workers, "num_envs": 2 * workers}).run.num_envs == 2 * workers


def test_the_algorithm_decides_which_settings_there_are():
    assert not hasattr(from_mapping({"env": "X", "algo": "a2c"}).algorithm, "clip_param")
    with pytest.raises(
        ConfigError, match="unknown setting clip_param for this algorithm: it is a setting of ppo or appo"
    ):
        from_mapping({"env": "X", "algo": "a2c", "clip_param": 0.2})


def test_without_an_environment_it_is_the_pendulum():
    assert from_mapping({}) == from_mapping({"env": "Pendulum-v1", "algo": "ppo"})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"env": "X", "lrr": 1.0}, r"unknown setting lrr; did you mean lr"),
        (
            {"env": "X", "run_name": "a"},
            r"run_name is no setting of a run: give .* penstock.train\(settings, run_name=",
        ),
        ({"env": "X", "preset": "a"}, r"preset is no setting of a run: give --preset NAME on the command line"),
        ({"env": "X", "num_env_runner": 2}, r"unknown setting num_env_runner; did you mean num_envs, num_workers, "),
        ({"env": "X", "gamma": 1.5}, "gamma takes a number from 0 to 1, not 1.5"),
        ({"env": "X", "num_envs": 8, "num_workers": 3}, "the nearest number that does is 2"),
        ({"env": "X", "early_stop": 3}, "--eval_interval"),
        *(
            ({"env": "X", "algo": algo, "updates_per_step": 1e9}, "takes a number from 0.0001 to 1,000, not 1e.09")
            for algo in ("sac", "td3", "dqn", "apex")
        ),
        ({"env": "X", "algo": "sac", "demonstration_share": 0.5}, "there are none; give --demonstrations"),
        ({"env": "  "}, "the name of an environment"),
        ({"env": "X", "algo": "pppo"}, "did you mean ppo"),
    ],
)
def test_what_does_not_fit_is_one_line(values, says):
    with pytest.raises(ConfigError, match=says) as refusal:
        from_mapping(values)
    assert "\n" not in str(refusal.value)


def test_a_config_is_checked_however_it_is_made():
    good = from_mapping({"env": "X"})
    with pytest.raises(ConfigError, match="num_envs"):
        Config(RunConfig(env="X", num_envs=0), good.algorithm)
    with pytest.raises(ConfigError, match="seed"):
        Config(RunConfig(env="X", seed="0"), good.algorithm)  # type: ignore[arg-type]


text = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(str.strip)
finite = st.floats(0.0, 1.0)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {"env": text},
        optional={
            "log_dir": text,
            "seed": st.integers(0, 2**63 - 1),
            "target_return": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "vector_env": st.booleans(),
            "num_workers": st.sampled_from(["auto", 1, 2, 4, 8]),
            "lr": finite,
            "gamma": finite,
            "hidden_sizes": st.lists(st.integers(1, 4096), min_size=1, max_size=4).map(tuple),
        },
    )
)
def test_toml_reads_back_to_an_equal_config(values):
    config = from_mapping(values)
    assert from_mapping(tomllib.loads(to_toml(config))) == config


def test_toml_leaves_out_what_is_none_and_holds_everything_else():
    config = from_mapping({"env": "X"})
    keys = tomllib.loads(to_toml(config)).keys()
    assert keys == {name for name, value in config.values().items() if value is not None}
    assert "target_return" not in keys


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_is_read(tmp_path, encoding):
    file = tmp_path / "my run é.toml"
    file.write_text('env = "X"\nmini-batch-size = 32\n', encoding=encoding)
    assert from_toml(file).algorithm.mini_batch_size == 32


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'env = "X"\nlrr = 1', r"unknown setting lrr in .*run\.toml; did you mean lr"),
        (b'env = "X"\nrun_name = "a"', r"run_name in .*run\.toml is no setting of a run: give --run_name NAME"),
        (b'env = "X"\nresume_if_exists = true', r"resume_if_exists in .* is no setting of a run: give --resume_if"),
        (b'env = "X"\nnum_env_runner = 2', r"unknown setting num_env_runner in .*; did you mean num_env_runners"),
        (b'env = "X"\ngamma = "high"', r'gamma in .*run\.toml takes a number from 0 to 1, not the text "high"$'),
        (b'env = "X"\n[ppo]\nlr = 1', r"unknown setting ppo in .*: it is a table, .* without \[ppo\]$"),
        (b"env = ", "is not TOML"),
        pytest.param(b"timesteps = 1" + 5000 * b"0", "is not TOML: .*digits", id="thousands of digits"),
        pytest.param(b"timesteps = 1" + 400 * b"0", "at least 1, not a number of 1329 bits$", id="hundreds of digits"),
        (b"\xff\xfe", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, content, says):
    file = tmp_path / "run.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        from_toml(file)


@pytest.mark.parametrize("ending", ["yaml", "yml", "json"])
def test_a_file_of_another_format_is_told_which_one_is_read(tmp_path, ending):
    file = tmp_path / f"run.{ending}"
    file.write_text("lr: 0.1\n")
    with pytest.raises(ConfigError, match=r"is not TOML: .*; a config is read as TOML alone: write lr = 0.001"):
        from_toml(file)


def test_numbers_and_arrays_of_numpy_are_settings():
    config = from_mapping(
        {"env": "X", "timesteps": np.int64(64), "lr": np.float32(0.5), "hidden_sizes": np.array([8, 9])}
    )
    assert (config.run.timesteps, config.algorithm.lr, config.algorithm.hidden_sizes) == (64, 0.5, (8, 9))
    assert type(config.run.timesteps) is int


@pytest.mark.parametrize("number", [8, np.int64(8), np.array(8)], ids=["python", "numpy", "array"])
def test_a_single_number_is_a_list_of_one(tmp_path, number):
    values = {"env": "X", "pad_batches": number, "hidden_sizes": number}
    config = from_mapping(values)
    assert (config.run.pad_batches, config.algorithm.hidden_sizes) == ((8,), (8,))
    file = tmp_path / "run.toml"
    file.write_text('env = "X"\npad_batches = 8\nhidden_sizes = 8\n')
    assert from_toml(file) == config
    assert with_changes(from_mapping({"env": "X"}), {"pad_batches": number}).run.pad_batches == (8,)
    file.write_text(to_toml(config))
    assert from_toml(file) == config


def test_a_path_is_the_text_of_it(tmp_path):
    kept = [tmp_path / "a", str(tmp_path / "b")]
    run = from_mapping({"env": "X", "algo": "sac", "log_dir": tmp_path, "demonstrations": kept}).run
    assert (run.log_dir, run.demonstrations) == (str(tmp_path), (str(tmp_path / "a"), str(tmp_path / "b")))
    assert from_mapping({"env": "X", "algo": "sac", "demonstrations": tmp_path}).run.demonstrations == (str(tmp_path),)
    with pytest.raises(ConfigError, match="timesteps takes a whole number"):
        from_mapping({"env": "X", "timesteps": tmp_path})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"pad_batches": 0}, "pad_batches takes none or powers or whole numbers from 1 to 65,536.*, not 0$"),
        ({"pad_batches": 8.5}, r"pad_batches takes .* whole numbers from 1 to 65,536.*, not 8\.5$"),
        ({"pad_batches": True}, "pad_batches takes .* whole numbers from 1 to 65,536.*, not True$"),
        ({"pad_batches": None}, "pad_batches takes .* whole numbers from 1 to 65,536.*, not None$"),
        ({"pad_batches": "fours"}, 'pad_batches takes none or powers or whole numbers .*, not the text "fours"$'),
        ({"ignore_obs": 8}, "ignore_obs takes "),
        ({"timesteps": 1e3}, r"a whole number of at least 1, not 1000\.0$"),
        ({"hidden_sizes": "64,64"}, r'takes a list, as \[64, 64\], not the text "64,64"$'),
        ({"lr": np.array([1.0, 2.0])}, "lr takes a number"),
    ],
)
def test_a_value_of_another_type_is_shown_with_it(values, says):
    with pytest.raises(ConfigError, match=says):
        from_mapping({"env": "X", **values})


def test_the_line_of_a_setting(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('env = "X"\nlr = 0.1\nhidden_sizes = [\n    8,\n]\n')
    assert line_of(file, "lr") == "line 2, lr = 0.1,"
    assert line_of(file, "hidden_sizes") == "hidden_sizes, lines 3 to 5,"
    assert line_of(file, "l") is None


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the config file .*nothing\.toml"):
        from_toml(tmp_path / "nothing.toml")


def test_every_preset_is_a_config_and_says_what_it_is_for():
    assert preset_names()
    for name, text in preset_texts().items():
        assert from_toml(preset_path(name)).run.env
        assert len(text) > 10
        assert text.endswith("."), f"the first line of {name} is what `penstock presets` prints of it"


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_for_learning_from_a_table_names_its_step_sizes(name):
    config, named = from_toml(preset_path(name)), tomllib.loads(preset_path(name).read_text("utf-8"))
    if hasattr(config.algorithm, "min_rows"):
        sizes = {"lr", "critic_lr", "temperature_lr"} & vars(config.algorithm).keys()
        assert sizes <= named.keys(), "what was chosen for a task does not move with the defaults"


def test_an_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean cartpole"):
        preset_path("cartpol")


def test_a_resume_changes_what_may_change():
    before = from_mapping({"env": "X", "num_envs": 4, "num_workers": 4, "lr": 0.1})
    flags = {"num_workers": Setting("2", "--num_workers", text=True), "seed": Setting("0", "--seed", text=True)}
    after = with_changes(before, {**flags, "lr": 0.2, "target_return": 5})
    changed = {name: value for name, value in after.values().items() if value != before.values()[name]}
    assert changed == {"num_workers": 2, "lr": 0.2, "target_return": 5.0}
    assert with_changes(after, {"target_return": None}).run.target_return is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_envs": 2}, "^num_envs cannot become 2: a resumed run keeps its own value, 4, because its checkpoints"),
        ({"seed": Setting("1", "--seed", text=True)}, "^--seed cannot become 1: .* 0, because its episodes"),
        ({"num_steps": 16}, "num_steps cannot become 16: .* 2048, because its lanes"),
        ({"hidden_sizes": (8,)}, "because its networks"),
        ({"num_workers": 3}, "--num_workers 3 does not divide"),
        ({"checkpoin": Setting("1", "--checkpoin", text=True)}, "unknown flag --checkpoin; did you mean --checkpoint"),
        ({"tau": 0.1}, "unknown setting tau"),
        ({"checkpoint": "best"}, "^checkpoint is an argument of resume, not a setting of the run$"),
        ({"run": Setting("a", "--run", text=True)}, "^--run is an argument of resume, not a setting of the run$"),
    ],
)
def test_what_a_resume_cannot_change_is_one_line(settings, says):
    with pytest.raises(ConfigError, match=says) as refusal:
        with_changes(from_mapping({"env": "X", "num_envs": 4}), settings)
    assert "\n" not in str(refusal.value)


def test_a_resume_names_the_run_that_it_began_with_as_it_was_typed(tmp_path, monkeypatch):
    """A service types the same command again, with --resume_if_exists."""
    monkeypatch.chdir(tmp_path)
    begun = from_mapping({"env": "X", "begin_with": str(tmp_path / "logs/other@best")})
    for typed in ("logs/other@best", "./logs/other@best", str(tmp_path / "logs/other@best")):
        assert with_changes(begun, {"begin_with": typed}).run.begin_with == begun.run.begin_with
    with pytest.raises(ConfigError, match="a resumed run keeps its own value"):
        with_changes(begun, {"begin_with": "logs/other"})


def test_a_resume_with_another_rule_decides_the_pace_anew():
    run = {"env": "X", "learners": 2, "exchange": "allreduce", "pace": "sync"}
    alone = with_changes(from_mapping(run), {"learners": 1}).run
    assert (alone.exchange, alone.pace) == ("auto", "auto")
    other = with_changes(from_mapping(run), {"exchange": "parameter_server"}).run
    assert (other.exchange, other.pace) == ("parameter_server", "auto")
    more = with_changes(from_mapping(run), {"learners": 3}).run
    assert (more.exchange, more.pace) == ("allreduce", "sync")


def test_a_resume_with_one_learner_has_its_table_on_the_launchers_machine():
    run = {"env": "X", "algo": "apex", "learners": 2, "distributed": True, "table_on": "learners"}
    alone = with_changes(from_mapping(run), {"learners": 1}).run
    assert (alone.learners, alone.table_on) == (1, "launcher")
    assert with_changes(from_mapping(run), {"learners": 3}).run.table_on == "learners"


@pytest.mark.parametrize("algo", ALGORITHMS.names())
def test_what_lanes_count_by_and_networks_are_made_with_stays_on_a_resume(algo):
    settings = {field.name: field for field in fields_of(find_algorithm(algo).config)}
    assert all(settings[name].fixed for name in ("num_steps", "hidden_sizes"))
    assert not settings["lr"].fixed


def test_wrappers_with_arguments_are_read_from_toml_and_kept(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('env = "X"\n[env_args]\nsize = 5\n[[wrap]]\nuse = "a:B"\narguments = {shape = [84, 84]}\n')
    config = from_toml(file)
    assert config.run.wrap == (Wrapping("a:B", {"shape": [84, 84]}),)
    assert config == from_mapping(
        {"env": "X", "env_args": {"size": 5}, "wrap": [{"use": "a:B", "arguments": {"shape": (84, 84)}}]}
    )
    # One wrapper needs no list.
    file.write_text('env = "X"\n[env_args]\nsize = 5\n[wrap]\nuse = "a:B"\narguments = {shape = [84, 84]}\n')
    assert from_toml(file) == config
    file.write_text(to_toml(config))
    assert from_toml(file) == config


@pytest.mark.parametrize(
    "values",
    [
        {"wrap": "a:B,c:D"},
        {"wrap": ["a:B", {"use": "c:D", "arguments": {"deep": {"x": [1, None, "é\n"]}}}]},
        {"wrap": []},
        {"env_args": {"a": None, "b": {"c d": 1.5}}, "reward": "a:b"},
        {"env_args": '{"a": true}'},
        {"env_args": {}},
    ],
)
def test_what_shapes_an_environment_survives_toml(values):
    config = from_mapping({"env": "X", **values})
    assert from_mapping(tomllib.loads(to_toml(config))) == config


def test_what_shapes_an_environment_is_the_runs_for_good():
    config = from_mapping({"env": "X", "env_args": {"size": 5}, "wrap": ["a:B"]})
    assert with_changes(config, {"wrap": ["a:B"], "env_args": {"size": 5}}) == config
    for name, value, says in (
        ("wrap", "a:C", "wrap cannot become a:C: a resumed run keeps its own value, a:B, because it was trained on"),
        ("env_args", {}, 'env_args cannot become {}: a resumed run keeps its own value, {"size": 5}, because'),
        ("reward", "a:b", "reward cannot become a:b: a resumed run keeps its own value, none, because its values"),
    ):
        with pytest.raises(ConfigError) as refusal:
            with_changes(config, {name: value})
        assert str(refusal.value).startswith(says)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"wrap": [3]}, "wrap takes module:Wrapper; one with arguments stands in a file .*; not 3"),
        ({"wrap": [{"use": "a:B", "argument": {}}]}, "^wrap takes use and arguments, not argument$"),
        ({"wrap": [{"arguments": {}}]}, "wrap takes module:Wrapper"),
        ({"wrap": [{"use": "a:B", "arguments": 3}]}, "^wrap: arguments of a:B are a table, .*, not 3$"),
        ({"wrap": [{"use": "a:B", "arguments": {"f": len}}]}, "wrap: arguments of a:B holds <built-in .*JSON cannot"),
        ({"env_args": {3: 4}}, "env_args has the key 3, which is no text"),
    ],
)
def test_what_no_file_could_keep_is_refused(values, says):
    with pytest.raises(ConfigError, match=says):
        from_mapping({"env": "X", **values})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # 8 lanes: two in a minibatch, four minibatches in a batch.
        ({"algo": "a2c", "model": "lstm"}, 16),
        ({"algo": "a2c", "model": "resnet+gru", "num_envs": 16, "num_steps": 4}, 16),
        ({"algo": "a2c", "model": "lstm", "num_envs": 2}, 8),
        ({"algo": "a2c", "model": "lstm", "mini_batch_size": 64}, 64),
        ({"algo": "ppo", "model": "lstm", "num_steps": 16}, 32),
        # Without a memory, with enough minibatches already, and for algorithms that cut a batch in another way.
        ({"algo": "a2c", "model": "mlp"}, 64),
        ({"algo": "ppo", "model": "lstm"}, 64),
        ({"algo": "a3c", "model": "lstm"}, 1024),
        ({"algo": "impala", "model": "lstm"}, 40),
    ],
)
def test_a_recurrent_batch_has_four_minibatches_by_default(settings, expected) -> None:
    assert from_mapping({"env": "X", **settings}).algorithm.mini_batch_size == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"algo": "a2c", "model": "remembering_nets:Remembering"}, 16),
        ({"algo": "a2c", "model": "remembering_nets:makes_one"}, 16),
        ({"algo": "a2c", "model": "remembering_nets:Forgetful"}, 64),
        # Nothing is imported where the size is given, or where the algorithm cuts a batch in another way.
        ({"algo": "a2c", "model": "no_such_module:Net", "mini_batch_size": 8}, 8),
        ({"algo": "a3c", "model": "no_such_module:Net"}, 1024),
    ],
)
def test_a_module_with_a_carry_has_a_memory(tmp_path, monkeypatch, settings, expected) -> None:
    (tmp_path / "remembering_nets.py").write_text(
        "class Remembering:\n    carry = {'h': 8}\n"
        "class Forgetful:\n    pass\n"
        "def makes_one(spaces, outputs):\n    return Remembering()\n"
        "makes_one.carry = Remembering.carry\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert from_mapping({"env": "X", **settings}).algorithm.mini_batch_size == expected


def test_a_table_with_a_memory_counts_as_one(tmp_path) -> None:
    table = tmp_path / "net.toml"
    table.write_text('[memory]\nkind = "gru"\n')
    assert from_mapping({"env": "X", "algo": "a2c", "model": str(table)}).algorithm.mini_batch_size == 16
    table.write_text("[trunk]\n")
    assert from_mapping({"env": "X", "algo": "a2c", "model": str(table)}).algorithm.mini_batch_size == 64
