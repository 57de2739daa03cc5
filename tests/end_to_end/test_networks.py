"""Networks of many kinds from training to the exported policy; modules of one's own with workers and a resume."""

import json
import re
import sys

import gymnasium
import numpy as np
import onnxruntime
import pytest

import penstock
from penstock.errors import CheckpointError, ConfigError
from penstock.saved_runs.best import find_checkpoint
from penstock.saved_runs.checkpoints import load_checkpoint
from penstock.torch_networks.own_trial import described
from tests.end_to_end.test_replay import TURN
from tests.end_to_end.test_replay import fingerprint as table_fingerprint
from tests.end_to_end.test_resume_is_exact import BATCH, fingerprint, train
from tests.environments import EyeEnv

pytestmark = pytest.mark.usefixtures("shared_templates")

SETTINGS = {
    "env": "tests.environments:EyeEnv",
    "num_envs": 2,
    "num_workers": 1,
    "num_steps": 16,
    "mini_batch_size": 16,
    "timesteps": 64,
    "eval_episodes": 2,
    "hidden_sizes": (8,),
    "backend": "eager",
    "runtime": "inline",
    "seed": 3,
}


def trained(tmp_path, **settings):
    return penstock.train({**SETTINGS, "log_dir": str(tmp_path / "logs"), **settings}, quiet=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"normalize_obs": True},
        {"model": "mlp", "init": "he"},
        # Five seconds each and more. Shorter: the others see the same image.
        pytest.param({"model": "resnet+lstm", "memory_size": 8, "layer_norm": True}, marks=pytest.mark.nightly),
        pytest.param({"algo": "a2c", "runtime": "local"}, marks=pytest.mark.nightly),
        pytest.param({"algo": "dqn", "min_rows": 32, "num_steps": 4}, marks=pytest.mark.nightly),
    ],
)
def test_an_image_beside_a_vector_from_training_to_its_policy(tmp_path, settings) -> None:
    done = trained(tmp_path, **settings)
    assert penstock.resume(done.run_folder, timesteps=128, quiet=True).steps == 128
    policy, env = penstock.load_policy(done.run_folder), EyeEnv()
    obs, _ = env.reset(seed=1)
    batch = {name: np.stack([values, values]) for name, values in obs.items()}
    session = policy.session(2)
    session_action = session.act(batch)
    given = {f"obs.{name}": values for name, values in batch.items()}
    file = onnxruntime.InferenceSession(done.run_folder / "policy.onnx")
    if session.carry:
        given |= {name: np.zeros_like(values) for name, values in session.carry.items()}
        given["first"] = np.ones(2, np.bool_)
    np.testing.assert_array_equal(file.run(["action"], given)[0], session_action)


TABLE = """
[fields.eye]
encoder = "cnn"
convolutions = [[4, 3, 2], [4, 3, 1]]
hidden_sizes = [8]
[fields.speed]
encoder = "mlp"
hidden_sizes = [8]
[trunk]
hidden_sizes = [16]
[memory]
kind = "gru"
size = 8
"""


def test_a_table_is_kept_in_the_run_folder(tmp_path) -> None:
    file = tmp_path / "my_net.toml"
    file.write_text(TABLE)
    # The table decides the widths.
    others = {name: value for name, value in SETTINGS.items() if name != "hidden_sizes"}
    done = penstock.train({**others, "model": str(file), "log_dir": str(tmp_path / "logs")}, quiet=True)
    file.unlink()
    assert penstock.resume(done.run_folder, timesteps=128, quiet=True).steps == 128
    assert penstock.evaluate(done.run_folder, episodes=1).episodes == 1


def test_a_setting_that_a_table_decides_is_to_be_taken_out_of_an_old_config(tmp_path) -> None:
    others = {name: value for name, value in SETTINGS.items() if name != "hidden_sizes"}
    model = {"trunk": {"hidden_sizes": [16]}}
    done = penstock.train({**others, "model": json.dumps(model), "log_dir": str(tmp_path)}, quiet=True)
    config = done.run_folder / "config.toml"
    old = config.read_text()
    line = old[: old.index("hidden_sizes = [\n")].count("\n") + 1
    config.write_text(re.sub(r"\nhidden_sizes = \[[^]]*\]", "\nhidden_sizes = [\n    8,\n]", old))
    says = f"hidden_sizes of the table decides it; take hidden_sizes, lines {line} to {line + 2}, out of {config}$"
    with pytest.raises(ConfigError, match=f"^--hidden_sizes has no effect: trunk.{says}"):
        penstock.resume(done.run_folder, timesteps=128, quiet=True)
    with pytest.raises(ConfigError, match=says):
        penstock.load_policy(done.run_folder)
    config.write_text(re.sub(r"\nhidden_sizes = \[[^]]*\]", "", old))
    assert penstock.resume(done.run_folder, timesteps=128, quiet=True).steps == 128


@pytest.mark.nightly  # Six seconds. Shorter: ``tests/algorithms/test_devices.py`` takes steps of SAC on such images.
def test_soft_actor_critics_see_images_too(tmp_path) -> None:
    settings = {"algo": "sac", "env": "tests.environments:SteeredEyeEnv", "min_rows": 32, "mini_batch_size": 8}
    assert trained(tmp_path, **settings, num_steps=4).steps == 64


def replayed(log_dir, turns, **settings):
    values = {"num_envs": 4, "mini_batch_size": 16, "runtime": "inline", "log_dir": str(log_dir), **settings}
    return penstock.train({**values, "timesteps": turns * TURN}, quiet=True)


OWN = {"env": "CartPole-v1", "backend": "eager"}


# Ten seconds each. Shorter: ``test_memory.py`` resumes policies with a memory, and own modules are served below.
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "runtime"), [("nets:make_policy", "local"), ("remembering:Remembering", "inline")])
def test_a_module_of_ones_own_resumed_equals_uninterrupted(tmp_path, name, runtime) -> None:
    settings = {**OWN, "model": f"examples.own_network.{name}"}
    whole = train(tmp_path / "whole", 4, **settings)
    first = train(tmp_path / "parts", 2, **settings, runtime=runtime)
    second = penstock.resume(first.run_folder, timesteps=4 * BATCH, quiet=True)
    assert second.not_restored == 0
    assert fingerprint(second) == fingerprint(whole)


STEERED = {
    "algo": "sac",
    "env": "Pendulum-v1",
    "num_steps": 16,
    "min_rows": 64,
    "updates_per_step": 0.1,
    "eval_episodes": 1,
    "backend": "eager",
    "sync_mode": "blocking",
}


# Ten seconds each. Shorter: ``tests/torch_networks/test_own.py`` acts by such modules, and the one above is resumed.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings",
    [
        {"model": "examples.own_network.steering:Steering"},
        {
            "algo": "r2d2",
            "env": "tests.environments:BlinkEnv",
            "model": "tests.torch_networks.own_modules:Recalling",
            "prioritised": False,
            "lr_schedule": "constant",
            "burn_in": 2,
            "learned_steps": 16,
        },
    ],
    ids=["actor and critic", "memory"],
)
def test_a_module_of_ones_own_learns_from_a_table_and_resumes(tmp_path, settings) -> None:
    whole = replayed(tmp_path / "whole", 8, **STEERED | settings, num_workers=1)
    first = replayed(tmp_path / "parts", 4, **STEERED | settings, num_workers=2, runtime="local")
    second = penstock.resume(first.run_folder, timesteps=8 * TURN, quiet=True)
    assert second.not_restored == 0
    assert table_fingerprint(second) == table_fingerprint(whole)
    assert load_checkpoint(find_checkpoint(whole.run_folder)).arrays["gradient_steps"] > 0


# Seven seconds with a memory.
@pytest.mark.parametrize("model", ["mlp", pytest.param("mlp+gru", marks=pytest.mark.nightly)])
def test_dropout_resumed_equals_uninterrupted_and_drops(tmp_path, model) -> None:
    settings = {**OWN, "model": model, **({"memory_size": 8} if "gru" in model else {})}
    whole = train(tmp_path / "whole", 4, **settings, dropout=0.2)
    first = train(tmp_path / "parts", 2, **settings, dropout=0.2)
    second = penstock.resume(first.run_folder, timesteps=4 * BATCH, quiet=True)
    assert fingerprint(second) == fingerprint(whole)
    assert fingerprint(train(tmp_path / "plain", 4, **settings))["actor"] != fingerprint(whole)["actor"]


NETS = """
from torch import nn

class Two(nn.Module):
    def __init__(self, spaces, outputs):
        super().__init__()
        self.below, self.above = nn.Linear(4, WIDTH), nn.Linear(WIDTH, outputs + 1)

    def forward(self, obs):
        y = self.above(self.below(obs).tanh())
        return y[:, :-1], y[:, -1]
"""


@pytest.mark.nightly  # Nine seconds. Shorter: ``test_a_module_of_ones_own_serves_its_policy`` trains with one.
def test_a_module_that_was_edited_since_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    nets = tmp_path / "nets_edited.py"
    nets.write_text(NETS.replace("WIDTH", "8"))
    first = train(tmp_path / "logs", 1, **OWN, model="nets_edited:Two")
    nets.write_text(NETS.replace("WIDTH", "16"))
    monkeypatch.delitem(sys.modules, "nets_edited")
    described.cache_clear()
    # 4 x 8 + 8 + 8 x 3 + 3 parameters, and the same with 16.
    says = (
        r"and its module nets_edited:Two: its actor is float32 \[67\], they need float32 \[131\]; set them back to what"
    )
    with pytest.raises(CheckpointError, match=says):
        penstock.resume(first.run_folder, timesteps=4 * BATCH, quiet=True)


@pytest.mark.nightly  # Ten seconds. Shorter: ``tests/torch_networks/test_own.py``, without a server.
def test_a_module_of_ones_own_serves_its_policy(tmp_path) -> None:
    done = train(tmp_path, 2, **OWN, model="examples.own_network.nets:make_policy")
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    (action,) = onnxruntime.InferenceSession(done.run_folder / "policy.onnx").run(["action"], {"obs": obs[None]})
    assert int(action[0]) == penstock.load_policy(done.run_folder)(obs)


@pytest.mark.nightly  # Nine seconds. Shorter: ``tests/torch_networks/test_own.py`` names what ONNX cannot express.
def test_a_module_that_onnx_cannot_express_acts_with_torch(tmp_path) -> None:
    branching = "tests.torch_networks.own_modules:Branching"
    settings = {**SETTINGS, "env": "Pendulum-v1", "model": branching, "log_dir": str(tmp_path)}
    del settings["hidden_sizes"]
    with pytest.raises(ConfigError, match="cannot be exported to ONNX"):
        penstock.train(settings, quiet=True)
    done = penstock.train({**settings, "inference": "torch"}, quiet=True)
    assert done.steps == 64
    assert any(f"no policy.onnx: --model {branching} cannot" in note for note in done.notes)
    assert not (done.run_folder / "policy.onnx").exists()
