"""ParameterNode: it begins from a checkpoint whose table was lost."""

from dataclasses import replace
from pathlib import Path

from penstock.memory.segment import Segment
from penstock.nodes.learner import ParameterNode
from penstock.planning import plan
from penstock.saved_runs.checkpoints import save_checkpoint
from penstock.topologies import async_off_policy
from penstock.wiring.edges import Wiring
from penstock.wiring.ports import NodePorts
from tests.planned import prepared

ROLLOUT = 8 * 4
SMALL = {
    "algo": "dqn",
    "backend": "fused",
    "sync_mode": "non_blocking",
    "learners": 2,
    "num_workers": 1,
    "num_envs": 4,
    "num_steps": 8,
    "min_rows": 2 * ROLLOUT,
    "updates_per_step": 0.25,
    "mini_batch_size": 8,
    "hidden_sizes": (4,),
    "timesteps": 10_000,
}


class Run:
    """A run whose one environment node is played by hand. Its learners find no gradient."""

    def __init__(self, checkpoint: Path | None = None) -> None:
        program = async_off_policy.build(plan(prepared(**SMALL), Path("run"), quiet=True))
        node = program.node("learner")
        self.manifest = program.node("checkpointer").settings.manifest
        keeper = replace(node.settings.keeper, checkpoint=checkpoint)
        self._wiring = Wiring(program.edges, [(each.name, each.group) for each in program.nodes])
        self._segment = Segment.create(self._wiring.nbytes, "test")
        self._wiring.attach(self._segment.bytes)
        self._env = NodePorts(self._wiring, "env.0", "env.0", 100)
        self._table = self._env.stream_writer("rollouts")
        self.node = ParameterNode(replace(node.settings, keeper=keeper))
        self.node.open(NodePorts(self._wiring, "learner", node.group, 1))
        self.collected = int(self.node._keeper.committed["steps"])
        self._env.note("collected", self.collected)

    def close(self) -> None:
        self._segment.close()

    def collect(self) -> None:
        """Push rollouts as long as the rate limiter allows it."""
        while (index := self._table.claim(0)) is not None:
            self._table.slot(index)["valid"][...] = True
            self.collected += ROLLOUT
            self._env.note("collected", self.collected)
            self._table.push(index)
            while self.node.ready():
                self.node.step()


def test_steps_that_were_due_on_rows_that_are_lost_hold_back_no_new_rows(tmp_path: Path) -> None:
    """The limiter has stopped collecting two turns ahead of the gradient steps. Without rows nobody can take these."""
    run = Run()
    run.collect()
    committed = dict(run.node._keeper.committed)
    assert int(committed["owed"]) * 4 == 2 * ROLLOUT
    facts = {"update": int(committed["update"]), "steps": int(committed["steps"])}
    path = save_checkpoint(tmp_path, committed, {**run.manifest, **facts})
    before = run.collected
    run.close()
    resumed = Run(path)
    resumed.collect()
    assert resumed.collected >= before + SMALL["min_rows"]
    resumed.close()
