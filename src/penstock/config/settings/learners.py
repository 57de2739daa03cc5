"""Settings of several learners. ``config/agreement.py`` says which of them go together."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from penstock.config.fields import AUTO
from penstock.config.settings.group import SettingsGroup, setting

__all__ = ["LearnersConfig"]


@dataclass(frozen=True, kw_only=True)
class LearnersConfig(SettingsGroup):
    """How many processes learn, how they agree, and what they send each other."""

    title: ClassVar[str] = "Several learners"

    learners: int = setting(
        1,
        "number of learner processes. By default each takes a part of every minibatch, and all take each step "
        "together. If an algorithm learns from a table with --sync_mode non_blocking on one machine, each has "
        "minibatches of its own. --exchange and --pace choose another way",
        min=1,
        max=12,
    )
    exchange: Literal["auto", "allreduce", "parameter_server", "gossip", "hogwild"] = setting(
        AUTO,
        "how several learners agree; allreduce: all take each step together, down their mean gradient; "
        "parameter_server: one node applies the gradients of all, at their --pace; gossip: each takes its own steps, "
        "and after each batch the mean of its state and its neighbours'; hogwild: each adds its own steps to one "
        "shared vector without locks, so a step may be half lost, which no other rule allows; auto: parameter_server "
        "where learning from a table overlaps collecting, without --runtime ray, else allreduce",
    )
    pace: Literal["auto", "sync", "async", "lag"] = setting(
        AUTO,
        "when a learner takes newer parameters; sync: all wait for each other at each step; async: before each "
        "gradient; lag: only once its own are more gradient steps old than --max_policy_lag minus twice the number of "
        "--learners, because two gradients of each learner may wait to be applied; async and lag "
        "need --sync_mode non_blocking; auto: async for parameter_server and hogwild with non_blocking, else sync",
    )
    compress: str = setting(
        "none",
        "how gradients are compressed between learners (allreduce, parameter_server); int8: 8 bits a number; "
        "topk:RATIO: only this share of the numbers, the largest. What is left out is added to the next gradient",
        pattern=r"none|int8|topk:[0-9.e-]+",
        form="none, int8 or topk:RATIO such as topk:0.05",
    )
    accumulate: int = setting(
        1,
        "split each minibatch into this many parts and average their gradients before the step; for minibatches too "
        "large for memory",
        min=1,
    )
