"""RLlib's settings in a config file become ours, and a line says so."""

from pathlib import Path

import pytest

from penstock.config.flags import config_from_arguments, file_note
from penstock.config.rllib import NAMES
from penstock.errors import ConfigError


def arguments(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "rllib.toml"
    path.write_text('env = "CartPole-v1"\n' + text)
    return ["--config", str(path)]


PPO = """
num_env_runners = 4
num_envs_per_env_runner = 2
train_batch_size = 4096
rollout_fragment_length = 256
minibatch_size = 128
num_epochs = 5
lambda = 0.9
grad_clip = 0.4
batch_mode = "truncate_episodes"
"""


def test_ppo(tmp_path: Path) -> None:
    argv = arguments(tmp_path, PPO)
    config = config_from_arguments(argv)
    assert (config.run.num_workers, config.run.num_envs) == (4, 8)
    ppo = config.algorithm
    # 4,096 rows of 8 lanes are 512 steps of each.
    assert (ppo.num_steps, ppo.mini_batch_size, ppo.epochs) == (512, 128, 5)
    assert (ppo.gae_lambda, ppo.max_grad_norm) == (0.9, 0.4)
    note = file_note(argv)
    assert "train_batch_size 4096 became num_steps 512" in note
    assert "rollout_fragment_length 256 is not used" in note
    assert "\n" not in note


def test_the_penalty_on_the_divergence(tmp_path: Path) -> None:
    argv = arguments(tmp_path, "kl_coeff = 0.3\nkl_target = 0.01\n")
    ppo = config_from_arguments(argv).algorithm
    assert (ppo.kl_coef, ppo.kl_target) == (0.3, 0.01)
    assert file_note(argv) == "settings of RLlib: kl_coeff 0.3 became kl_coef 0.3"


def test_a_fragment_that_rllib_chooses_itself_changes_nothing(tmp_path: Path) -> None:
    argv = arguments(tmp_path, 'rollout_fragment_length = "auto"\n')
    assert config_from_arguments(argv) == config_from_arguments(arguments(tmp_path, ""))
    said = "rollout_fragment_length auto changes nothing: num_steps follows from a batch, or is as given"
    assert file_note(arguments(tmp_path, 'rollout_fragment_length = "auto"\n')) == f"settings of RLlib: {said}"


def test_a_batch_alone_is_of_one_lane(tmp_path: Path) -> None:
    config = config_from_arguments(arguments(tmp_path, "train_batch_size = 1001\n"))
    assert (config.run.num_envs, config.algorithm.num_steps) == (1, 1001)


def test_learning_from_a_table(tmp_path: Path) -> None:
    text = 'algo = "dqn"\nnum_env_runners = 0\ntrain_batch_size = 32\nrollout_fragment_length = 4\n'
    config = config_from_arguments(arguments(tmp_path, text))
    assert config.run.num_workers == 1
    assert (config.algorithm.mini_batch_size, config.algorithm.num_steps) == (32, 4)


def test_names_are_read_for_the_algorithm_of_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "rllib.toml"
    path.write_text("train_batch_size = 512\n")
    argv = ["--preset", "dqn-cartpole", "--config", str(path)]
    assert config_from_arguments(argv).algorithm.mini_batch_size == 512
    assert file_note(argv) == "settings of RLlib: train_batch_size 512 became mini_batch_size 512"


OLDER = """
num_rollout_workers = 2
num_envs_per_worker = 3
evaluation_interval = 7
num_cpus = 8
num_gpus = 1
num_gpus_per_learner = 0.5
remote_worker_envs = true
remote_env_runner_envs = false
batch_mode = "truncate_episodes"
"""


def test_older_names_and_settings_that_change_nothing(tmp_path: Path) -> None:
    argv = arguments(tmp_path, OLDER)
    run = config_from_arguments(argv).run
    assert (run.num_workers, run.num_envs, run.eval_interval) == (2, 6, 7)
    assert (run.device, run.resources) == ("cuda", None)
    note = file_note(argv)
    assert "num_envs_per_worker 3 became num_envs 6" in note
    assert "evaluation_interval 7 became eval_interval 7" in note
    assert "num_cpus 8 is not used: Ray knows the cores of each machine" in note
    assert "num_gpus 1 became device cuda" in note
    assert "num_gpus_per_learner 0.5 is not used: --device cuda puts a learner on a GPU" in note
    for apart in ("remote_worker_envs True", "remote_env_runner_envs False"):
        assert f"{apart} is not used: the environments are split over num_workers processes" in note
    assert "batch_mode truncate_episodes changes nothing" in note


LARGE = """
num_cpus = 64
num_rollout_workers = 32
num_gpus = 4
lr = 1e-3
train_batch_size = 32000
rollout_fragment_length = 200
num_envs_per_worker = 5
remote_worker_envs = true
"""


def test_a_large_machine(tmp_path: Path) -> None:
    argv = arguments(tmp_path, LARGE)
    config = config_from_arguments(argv)
    # 32 processes of 5 lanes each. 32,000 rows of 160 lanes are 200 steps of each, as long as RLlib's fragments.
    assert (config.run.num_workers, config.run.num_envs, config.algorithm.num_steps) == (32, 160, 200)
    assert (config.algorithm.lr, config.run.device) == (1e-3, "cuda")
    assert file_note(argv) == (
        "settings of RLlib: num_cpus 64 is not used: Ray knows the cores of each machine, and --resources says what "
        "nodes ask for; num_envs_per_worker 5 became num_envs 160; num_gpus 4 became device cuda; num_rollout_workers "
        "32 became num_workers 32; remote_worker_envs True is not used: the environments are split over num_workers "
        "processes; rollout_fragment_length 200 is not used: each lane gives all its rows of a batch together; "
        "train_batch_size 32000 became num_steps 200"
    )


@pytest.mark.parametrize(("text", "device"), [("num_gpus = 0\n", "cpu"), ("num_gpus_per_learner = 1\n", "cuda")])
def test_a_gpu_or_none(tmp_path: Path, text: str, device: str) -> None:
    assert config_from_arguments(arguments(tmp_path, text)).run.device == device


def test_both_words_for_gpus_are_one_device_and_the_flag_wins(tmp_path: Path) -> None:
    argv = arguments(tmp_path, "num_gpus = 1\nnum_gpus_per_learner = 1\n")
    assert file_note(argv) == "settings of RLlib: num_gpus 1 became device cuda"
    argv += ["--device", "cpu"]
    assert config_from_arguments(argv).run.device == "cpu"
    assert file_note(argv) == "settings of RLlib: num_gpus 1 is not used: --device cpu is given"


def test_the_document_lists_every_name() -> None:
    table = (Path(__file__).parents[2] / "docs/rllib.md").read_text()
    assert [name for name in sorted(NAMES) if f"`{name}`" not in table and f"`{name} =" not in table] == []


def test_a_file_of_our_own_has_no_note(tmp_path: Path) -> None:
    assert file_note(arguments(tmp_path, "lr = 0.1\n")) == ""
    assert file_note(["--env", "X"]) == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('batch_mode = "complete_episodes"\n', "batch_mode complete_episodes has no counterpart"),
        ('batch_mode = "weird"\n', "batch_mode in .*rllib.toml takes truncate_episodes, not weird"),
        ("env_config = {a = 1}\n", "unknown setting env_config in .*rllib.toml; it is env_args here$"),
        ("kl_coeff = 0.2\nkl_coef = 0.2\n", "kl_coeff of RLlib is kl_coef here, which is given as well"),
        ("vf_clip_param = 10.0\n", "vf_clip_param of RLlib has no counterpart: .*; leave it out"),
        ("num_env_runners = 2\nnum_workers = 2\n", "which is given as well"),
        ("num_envs_per_worker = 2\nnum_envs_per_env_runner = 2\n", "num_envs here, which is given as well"),
        ("num_env_runners = 3\ntrain_batch_size = 100\n", "no multiple of the 3 lanes; give 99 or 102$"),
        ("num_env_runners = 3\ntrain_batch_size = 2\n", "no multiple of the 3 lanes; give 3$"),
        (
            "num_env_runners = 4\nnum_learners = 2\ntrain_batch_size_per_learner = 4001\n",
            r"a batch of 8002 rows \(train_batch_size_per_learner\) is no .* of the 4 lanes; give 4,000 or 4,002$",
        ),
        ("use_critic = true\n", "use_critic of RLlib has no counterpart: .*; leave it out"),
        ('observation_filter = "MeanStdFilter"\n', "observation_filter of RLlib .*: normalize_obs = true .*; leave it"),
        (
            "[env_runners]\nnum_env_runners = 2\n",
            r"unknown setting env_runners in .*: it is a table, .*, without \[env_runners\]$",
        ),
        ('num_workers = "auto"\ntrain_batch_size = 64\n', r"num_workers in .*rllib.toml is auto; give a number"),
        ('num_workers = "auto"\nnum_envs_per_worker = 2\n', r"^num_envs_per_worker in .*rllib.toml needs to know"),
        ('num_workers = "4"\ntrain_batch_size = 64\n', 'num_workers in .* at least 1, not the text "4"'),
        ('train_batch_size = "4000"\n', 'train_batch_size in .*rllib.toml takes a .* at least 1, not the text "4000"'),
        ("train_batch_size = 0\n", "train_batch_size in .*rllib.toml takes a whole number of at least 1, not 0"),
        ('num_env_runners = "4"\n', 'num_env_runners in .*rllib.toml takes .* of at least 0, not the text "4"'),
        ("num_env_runners = -1\n", "num_env_runners in .*rllib.toml takes a whole number of at least 0, not -1"),
        ("num_env_runners = true\n", "num_env_runners in .*rllib.toml takes a whole number of at least 0, not True"),
        ("num_learners = 2.5\n", "num_learners in .*rllib.toml takes a whole number of at least 0, not 2.5"),
        ("num_envs_per_worker = 0\ntrain_batch_size = 64\n", "num_envs_per_worker in .*rllib.toml takes .*, not 0"),
        ('lambda = "much"\n', 'lambda in .*rllib.toml takes a number .*, not the text "much"'),
        ("num_env_runner = 3\n", "unknown setting num_env_runner"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config_from_arguments(arguments(tmp_path, text))


def test_learners_share_what_is_a_minibatch_of_each_in_rllib(tmp_path: Path) -> None:
    argv = arguments(tmp_path, "num_learners = 2\nminibatch_size = 128\n")
    assert config_from_arguments(argv).algorithm.mini_batch_size == 256
    assert "minibatch_size 128 became mini_batch_size 256" in file_note(argv)
    # The flag wins over the file.
    assert config_from_arguments([*argv, "--learners", "1"]).algorithm.mini_batch_size == 128
    older = arguments(tmp_path, "num_learners = 2\nsgd_minibatch_size = 128\n")
    assert config_from_arguments(older).algorithm.mini_batch_size == 128


def test_a_number_of_lanes_needs_no_number_of_processes(tmp_path: Path) -> None:
    argv = arguments(tmp_path, 'num_workers = "auto"\nnum_envs = 8\ntrain_batch_size = 64\n')
    assert rows_and_lanes(argv) == (64, 8)


def test_a_batch_of_each_learner_is_multiplied(tmp_path: Path) -> None:
    text = "num_env_runners = 2\nnum_learners = 2\ntrain_batch_size_per_learner = 256\n"
    config = config_from_arguments(arguments(tmp_path, text))
    assert config.algorithm.num_steps * config.run.num_envs == 512
    with pytest.raises(ConfigError, match="say the same in two ways"):
        config_from_arguments(arguments(tmp_path, text + "train_batch_size = 512\n"))


def test_each_learner_has_a_lane_if_nothing_gives_lanes(tmp_path: Path) -> None:
    text = "num_learners = 2\ntrain_batch_size_per_learner = 300\n"
    assert rows_and_lanes(arguments(tmp_path, text)) == (600, 2)
    assert rows_and_lanes(arguments(tmp_path, text + "num_env_runners = 3\n")) == (600, 6)


def rows_and_lanes(argv: list[str]) -> tuple[int, int]:
    config = config_from_arguments(argv)
    return config.algorithm.num_steps * config.run.num_envs, config.run.num_envs


def test_a_batch_keeps_its_rows_if_a_flag_changes_what_it_is_split_over(tmp_path: Path) -> None:
    argv = arguments(tmp_path, "train_batch_size = 4000\n")
    assert rows_and_lanes(argv) == (4000, 1)
    assert rows_and_lanes([*argv, "--num_envs", "8"]) == (4000, 8)
    assert rows_and_lanes([*argv, "--num_workers", "4"]) == (4000, 4)
    note = file_note([*argv, "--num-workers=4"])
    assert "train_batch_size 4000 became num_steps 1000" in note
    argv = arguments(tmp_path, "num_env_runners = 2\nnum_envs_per_env_runner = 5\ntrain_batch_size = 4000\n")
    assert rows_and_lanes([*argv, "--num_workers", "4"]) == (4000, 20)
    assert "num_env_runners 2 is not used: --num_workers 4 is given" in file_note([*argv, "--num_workers", "4"])
    argv = arguments(tmp_path, "train_batch_size_per_learner = 4000\n")
    assert rows_and_lanes([*argv, "--learners", "2"]) == (8000, 2)
