from collections.abc import Sequence

from penstock.types import Array, Arrays, StepResult

def levels() -> list[str]: ...
def noise(distribution: str, seed: int, lanes: Array, step: int, out: Array, level: str | None = None) -> None: ...
def elementwise(name: str, values: Array, level: str | None = None) -> None: ...
def advantages(
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
    log_ratio: Array | None,
    rho_bar: float,
    c_bar: float,
) -> None: ...
def lstm(
    x: Array,
    recurrent: Array,
    first: Array,
    h: Array,
    c: Array,
    output: Array,
    last_h: Array,
    last_c: Array,
    gates: Array,
    cells: Array,
    level: str | None = None,
) -> None: ...
def lstm_backward(
    d_output: Array,
    d_last_h: Array,
    d_last_c: Array,
    recurrent: Array,
    first: Array,
    h: Array,
    c: Array,
    output: Array,
    gates: Array,
    cells: Array,
    d_x: Array,
    d_recurrent: Array,
    d_h: Array,
    d_c: Array,
    level: str | None = None,
) -> None: ...
def gru(
    x: Array,
    recurrent: Array,
    bias: Array,
    first: Array,
    h: Array,
    output: Array,
    last_h: Array,
    gates: Array,
    level: str | None = None,
) -> None: ...
def gru_backward(
    d_output: Array,
    d_last_h: Array,
    recurrent: Array,
    first: Array,
    h: Array,
    output: Array,
    gates: Array,
    d_x: Array,
    d_recurrent: Array,
    d_bias: Array,
    d_h: Array,
    level: str | None = None,
) -> None: ...

class BoundPolicy:
    def act(self, t: int, step: int) -> None: ...
    def value(self, t: int) -> None: ...

class Policy:
    def __init__(
        self,
        encoding: Sequence[tuple[bool, int, int]],
        actor: Sequence[tuple[str, int, int, str]],
        critic: Sequence[tuple[str, int, int, str]],
        head: tuple[str, int, int, int, float, float, bool],
        normalize_obs: bool,
        normalize_value: bool,
        masked: bool,
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
        first: Array | None,
        carry: Sequence[Array],
        next_carry: Sequence[Array],
        mask: Array | None,
        noise: Array,
        explore: Array,
        action: Array | None,
        log_prob: Array | None,
        value: Array | None,
        q: Array | None,
    ) -> None: ...
    def judge(self, obs: Sequence[Array], action: Array, log_prob: Array, value: Array) -> None: ...
    def bind(
        self,
        obs: Sequence[Array],
        first: Array | None,
        carry: Sequence[Array],
        mask: Array | None,
        action: Array | None,
        log_prob: Array | None,
        value: Array | None,
        q: Array | None,
        environment: Array | None,
        lanes: Array | None,
        explore: Array | None,
        bounded: bool,
        low: Sequence[float],
        high: Sequence[float],
        start: int,
        seed: int,
    ) -> BoundPolicy: ...

class _Runs:
    def run(
        self,
        actor: Sequence[Array],
        critic: Sequence[Array],
        indices: Array,
        weights: Array,
        step: int,
        lr: float,
        threads: int,
    ) -> int: ...
    def compute_gradients(
        self,
        actor: Array,
        critic: Array,
        indices: Array,
        weights: Array,
        whole: tuple[float, float] | None,
        actor_gradient: Array,
        critic_gradient: Array,
        threads: int,
    ) -> float: ...
    def descend(
        self,
        actor: Sequence[Array],
        critic: Sequence[Array],
        actor_gradient: Array,
        critic_gradient: Array,
        step: int,
        lr: float,
    ) -> None: ...
    def metrics(self) -> dict[str, float]: ...

class Update(_Runs):
    def __init__(
        self,
        encoding: Sequence[tuple[bool, int, int]],
        actor: Sequence[tuple[str, int, int, str]],
        critic: Sequence[tuple[str, int, int, str]],
        gaussian: bool,
        size: int,
        normalize_obs: bool,
        normalize_value: bool,
        clip_param: float | None,
        value_coef: float,
        entropy_coef: float,
        max_grad_norm: float,
        clip_apart: bool,
        normalize_advantage: bool,
        optimizer: tuple[str, float, float, float],
        rows: int,
        level: str | None = None,
        weighed: bool = False,
    ) -> None: ...
    def pack(
        self,
        obs: Sequence[Array],
        action: Array,
        log_prob: Array,
        advantage: Array,
        target: Array,
        first: int,
        count: int,
        obs_mean: Array | None,
        obs_var: Array | None,
        value_mean: float,
        value_var: float,
        importance: Array | None = None,
    ) -> None: ...

class CorrectedUpdate(_Runs):
    def __init__(
        self,
        encoding: Sequence[tuple[bool, int, int]],
        actor: Sequence[tuple[str, int, int, str]],
        critic: Sequence[tuple[str, int, int, str]],
        gaussian: bool,
        size: int,
        normalize_obs: bool,
        normalize_value: bool,
        clip_param: float | None,
        value_coef: float,
        entropy_coef: float,
        max_grad_norm: float,
        clip_apart: bool,
        normalize_advantage: bool,
        optimizer: tuple[str, float, float, float],
        lanes: tuple[int, int, float, float, float, float, float],
        rows: int,
        level: str | None = None,
    ) -> None: ...
    def pack(
        self,
        obs: Sequence[Array],
        action: Array,
        log_prob: Array,
        reward: Array,
        terminated: Array,
        truncated: Array,
        valid: Array,
        bootstrap: Array,
        size: Array,
        first: int,
        count: int,
        obs_mean: Array | None,
        obs_var: Array | None,
        value_mean: float,
        value_var: float,
    ) -> None: ...

class RolloutWriter:
    def __init__(
        self, slot: Arrays, fields: Sequence[str], same_step: bool, running_return: Array, running_length: Array
    ) -> None: ...
    def store(self, t: int, result: StepResult) -> tuple[int, ...]: ...

class ReplayUpdate:
    gradient_steps: int
    @property
    def phases(self) -> list[tuple[str, int, list[str]]]: ...
    def bind(
        self,
        obs: Sequence[Array],
        next_obs: Sequence[Array],
        action: Array,
        reward: Array,
        discount: Array,
        importance: Array | None,
        weight: Array,
        priority: Array | None,
    ) -> None: ...
    def load(self, name: str, values: Array) -> bool: ...
    def store(self, name: str, values: Array) -> bool: ...
    def refresh(self) -> None: ...
    def normalise(self, mean: Array, variance: Array) -> None: ...
    def steps(self, name: str) -> int: ...
    def put_steps(self, name: str, steps: int) -> None: ...
    def run(
        self,
        count: int,
        seed: int,
        number: int,
        beta: float,
        lr: Sequence[float],
        threads: int,
        minibatches: object,
    ) -> tuple[int, str | None, str | None]: ...
    def step(self, lr: Sequence[float], threads: int) -> None: ...
    def compute_gradients(self, phase: int, threads: int) -> None: ...
    def apply(self, phase: int, lr: Sequence[float], threads: int) -> None: ...
    def gradient(self, name: str, out: Array) -> None: ...
    def put_gradient(self, name: str, values: Array) -> None: ...
    def metrics(self) -> dict[str, float]: ...

def soft_actor_critic(
    encoding: Sequence[tuple[bool, int, int]],
    actor: Sequence[tuple[str, int, int, str]],
    critic: Sequence[tuple[str, int, int, str]],
    critics: int,
    action: int,
    log_std_min: float,
    log_std_max: float,
    learns_temperature: bool,
    target_entropy: float,
    tau: float,
    policy_delay: int,
    seeds: Sequence[int],
    first_row: int,
    optimizer: tuple[str, float, float, float],
    level: str | None = None,
) -> ReplayUpdate: ...
def distributional_actor_critic(
    encoding: Sequence[tuple[bool, int, int]],
    actor: Sequence[tuple[str, int, int, str]],
    critic: Sequence[tuple[str, int, int, str]],
    critics: int,
    action: int,
    log_std_min: float,
    log_std_max: float,
    learns_temperature: bool,
    target_entropy: float,
    tau: float,
    policy_delay: int,
    bound: float,
    refined: bool,
    seeds: Sequence[int],
    first_row: int,
    optimizer: tuple[str, float, float, float],
    level: str | None = None,
) -> ReplayUpdate: ...
def deterministic_actor_critic(
    encoding: Sequence[tuple[bool, int, int]],
    actor: Sequence[tuple[str, int, int, str]],
    critic: Sequence[tuple[str, int, int, str]],
    critics: int,
    action: int,
    policy_delay: int,
    smoothing: float,
    smoothing_clip: float,
    tau: float,
    seeds: Sequence[int],
    first_row: int,
    optimizer: tuple[str, float, float, float],
    level: str | None = None,
) -> ReplayUpdate: ...
def q_learning(
    encoding: Sequence[tuple[bool, int, int]],
    layers: Sequence[tuple[str, int, int, str]],
    actions: int,
    atoms: int,
    low: float,
    high: float,
    dueling: bool,
    double_q: bool,
    error_clip: float,
    max_grad_norm: float,
    least_priority: float,
    target_every: int,
    optimizer: tuple[str, float, float, float],
    level: str | None = None,
) -> ReplayUpdate: ...
