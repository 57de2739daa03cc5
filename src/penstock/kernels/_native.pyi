from collections.abc import Sequence

from penstock.types import Array

def levels() -> list[str]: ...
def noise(distribution: str, seed: int, lanes: Array, step: int, out: Array, level: str | None = None) -> None: ...
def elementwise(name: str, values: Array, level: str | None = None) -> None: ...
def gae(
    reward: Array,
    value: Array,
    terminated: Array,
    truncated: Array,
    valid: Array,
    final_count: int,
    final_t: Array,
    final_lane: Array,
    final_value: Array,
    same_step: bool,
    gamma: float,
    gae_lambda: float,
    advantage: Array,
    target: Array,
) -> None: ...

class BoundPolicy:
    def act(self, t: int, step: int) -> None: ...
    def value(self, t: int) -> None: ...

class Policy:
    def __init__(
        self,
        encoding: Sequence[tuple[bool, int, int]],
        actor: Sequence[tuple[int, int, str]],
        critic: Sequence[tuple[int, int, str]],
        gaussian: bool,
        size: int,
        log_std: int,
        normalize_obs: bool,
        normalize_value: bool,
        level: str | None = None,
    ) -> None: ...
    @property
    def level(self) -> str: ...
    def load(
        self,
        actor: Array,
        critic: Array | None,
        obs_mean: Array | None,
        obs_var: Array | None,
        value_mean: float,
        value_var: float,
    ) -> None: ...
    def act(
        self,
        obs: Sequence[Array],
        noise: Array,
        explore: Array,
        action: Array | None,
        log_prob: Array | None,
        value: Array | None,
    ) -> None: ...
    def bind(
        self,
        obs: Sequence[Array],
        action: Array | None,
        log_prob: Array | None,
        value: Array | None,
        environment: Array | None,
        lanes: Array | None,
        explore: Array | None,
        bounded: bool,
        low: Sequence[float],
        high: Sequence[float],
        start: int,
        seed: int,
    ) -> BoundPolicy: ...
