"""Settings of what computes updates and actions. Decides nothing that is ``auto``."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.fields import AUTO
from penstock.config.settings.group import SettingsGroup, setting
from penstock.registry import INFERENCE, UPDATES

__all__ = ["COMPILED_PAYS_FROM", "COMPILED_STEPS_PAY_FROM", "ComputationConfig"]

COMPILED_PAYS_FROM = 300_000
"""Timesteps from which on compiling an update saves more time than it costs: 8 s on two cores."""
COMPILED_STEPS_PAY_FROM = 20_000
"""The same for gradient steps from a table. One of SAC took 10.9 ms eager and 6.9 ms compiled; compiling took 30 s."""


@dataclass(frozen=True, kw_only=True)
class ComputationConfig(SettingsGroup):
    """The device and backend of updates, and what computes actions: where, in how many processes, in which batches."""

    title: ClassVar[str] = "What computes updates and actions"

    device: str = setting(
        "cpu",
        "device of the learner; with cuda each of several learners takes the next GPU of its machine",
        pattern=r"cpu|cuda(:\d+)?",
        form="cpu, cuda or cuda:N",
    )
    backend: str = setting(
        AUTO,
        "how an update runs; auto: fused (native, without torch) if it can run the algorithm and model; else compiled "
        "on a GPU, and on the CPU if a C++ compiler is installed and the run has at least "
        f"{COMPILED_PAYS_FROM:,} steps, or {COMPILED_STEPS_PAY_FROM:,} gradient steps from a table; else eager",
        choices=(AUTO, *UPDATES.names()),
    )
    inference: str = setting(
        AUTO,
        "what computes actions; auto: native if it can run the policy; else onnx with --device cpu; else torch",
        choices=(AUTO, *INFERENCE.names()),
    )
    pad_batches: tuple[int, ...] | Literal["none", "powers"] = setting(
        "powers",
        "on a GPU: sizes to which batches of observations are padded, because torch answers each size by a CUDA graph "
        "of its own; powers: powers of two; none: no padding, a graph for every size; or numbers of observations, such "
        "as 8,64: a batch that is larger than all of them is padded to a multiple of the largest",
        min=1,
        max=65536,
    )
    policy_placement: Literal["auto", "env", "node"] = setting(
        "auto",
        "where actions are computed; env: in each environment process; node: in policy nodes, processes that "
        "answer many environment processes in one batch; auto: env, unless a native policy of this size was measured "
        "to be faster in a node, or torch computes it on a GPU and the run is not in lock step",
    )
    policy_nodes: int = setting(
        1,
        "with --policy_placement node: number of policy nodes; with --runtime ray, on each machine with environment "
        "processes. A rollout is answered by the one of its machine with the shortest queue when it begins; a long one "
        "chooses again after each --renew_every steps",
        min=1,
    )
    max_batch: int | None = setting(
        None,
        "with --policy_placement node: largest number of observations that a policy node answers at once; left out: "
        "all that wait. Those of one process stay together, also if they are more",
        min=1,
        max=65536,
    )
    max_wait: float = setting(
        0.0,
        "with --policy_placement node: seconds that a policy node waits for environment processes that will ask soon, "
        "for larger batches; 0: it takes what has arrived. A batch leaves earlier once it has --max_batch "
        "observations or all of them have asked",
        min=0,
        max=1,
    )
    threads: int | Literal["auto"] = setting(
        "auto",
        "threads of each learner, at most one a core; auto: 2 for the fused update, which cannot use more; all free "
        "cores for image networks and wide networks; else 1",
        min=1,
        max=1024,
    )
