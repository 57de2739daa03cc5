"""Every setting of a run with its default and help text.

Hyper-parameters of an algorithm are in its ``spec.py``. Reads no file, and decides nothing that is ``auto``.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.config.fields import BY_NETWORKS, Demands, Value, Wrapping
from penstock.registry import INFERENCE, RUNTIMES, UPDATES, texts_of

__all__ = ["AUTO", "COMPILED_PAYS_FROM", "COMPILED_STEPS_PAY_FROM", "HTTP_PORT", "MOST_EPISODE_METRICS", "RunConfig"]

AUTO = "auto"
"""Value of a setting that penstock decides, from the machine and from the run."""
COMPILED_PAYS_FROM = 300_000
"""Timesteps from which on compiling an update saves more time than it costs: 8 s on two cores."""
COMPILED_STEPS_PAY_FROM = 20_000
"""The same for gradient steps from a table. One of SAC took 10.9 ms eager and 6.9 ms compiled; compiling took 30 s."""
MOST_EPISODE_METRICS = 32
"""With longer names than these have, the report of an update would find no room."""
HTTP_PORT = 8000
"""Where clients of a policy, and games, connect over HTTP if the user names no port."""


def _setting(default: Value, text: str, **bounds: Value) -> Any:  # noqa: ANN401  (a field stands for its value)
    return field(default=default, metadata={"help": text, **bounds})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings of a run except the algorithm's hyper-parameters."""

    env: str = _setting(
        "Pendulum-v1",
        "the environment: a Gymnasium id; module:Id, of a module that registers it; module:name of a class "
        "or function that makes it; envpool:task; pettingzoo:module; or a game or simulator: gamecore://module:Agent, "
        "godot://, mlagents:// or dm_env_rpc://ADDRESS",
        pattern=r"(?s).*\S.*",
        form="the name of an environment",
        fixed="its checkpoints are of this environment",
    )
    env_args: dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": """the environment's keyword arguments, as JSON: '{"config": {"duration": 20}}'; in TOML a table""",
            "fixed": "it was trained with these arguments",
        },
    )
    wrap: tuple[Wrapping, ...] | None = _setting(
        None,
        "wrapper around each environment; for several, repeat the flag or separate them by commas, the first is the "
        'innermost; with arguments in TOML: wrap = [{use = "module:Wrapper", arguments = {size = 84}}]',
        adds=True,
        fixed="it was trained on the environment with these wrappers",
    )
    reward: str | None = _setting(
        None,
        "your own reward in place of the environment's: a function for each step, or a class for each episode "
        "(docs/rewards.md); reported returns stay the environment's",
        pattern=r"(?s).*\S.*",
        form="module:name of a function or a class",
        adds=True,  # so that a second one is refused, and does not take the place of the first
        fixed="its values were learned from these rewards",
    )
    algo: str = _setting(
        "ppo",
        "algorithm: a name that `penstock algos` lists, or your own package, such as my_package.my_algorithm",
        pattern=r".+",
        form="the name of an algorithm",
        fixed="its checkpoints are this algorithm's",
    )
    num_envs: int = _setting(
        8,
        "number of environments that are stepped side by side (lanes); of an environment with several agents each is a "
        "lane; left out: the least multiple of --num_workers that is at least 8",
        min=1,
        max=1_000_000,
        fixed="its checkpoints hold the state of each lane",
    )
    num_workers: int | Literal["auto"] = _setting(
        "auto",
        "number of environment processes; auto: one for each core, but with non_blocking 2 cores fewer if there are "
        "more than 2; on several machines four fifths of all their cores, divided by the cpu that --resources asks for",
        min=1,
    )
    timesteps: int = _setting(
        1_000_000,
        "environment steps of the run, of all lanes together; steps that are dropped do not count",
        min=1,
    )
    sync_mode: str = _setting(
        AUTO,
        "blocking: collection and learning take turns (lock step), repeatable bit for bit; non_blocking: they overlap; "
        "auto: non_blocking for impala, appo, r2d2 and a3c, and where several learners do not wait for each other "
        "(--exchange, --pace); else blocking",
        choices=(AUTO, "blocking", "non_blocking"),
        fixed="its checkpoints hold the lanes as this mode left them",
    )
    runtime: str = _setting("local", texts_of(RUNTIMES), choices=RUNTIMES.names())
    distributed: bool = _setting(False, "use all machines of a Ray cluster: the same as --runtime ray")
    address: str | None = _setting(
        None,
        "the Ray cluster: auto (the one that this machine belongs to), the host:port of its head, or local (a new one "
        "on this machine); left out: auto if there is one, else local",
        pattern=r"\S+",
        form="auto, local or host:port",
    )
    resources: Demands | None = field(
        default=None,
        metadata={
            "help": "what each environment process (env) and each learner asks the Ray cluster for: cpu, gpu, or "
            "resources by your own names. They run on machines that have it, and Ray keeps it for them; left out: they "
            "ask for nothing, and environment processes are shared out by cores",
            "form": 'resources such as "env: {cpu: 1}, learner: {gpu: 1}"',
        },
    )
    min_workers: int | None = _setting(
        None,
        "environment processes that must have room for what they ask for (--resources) before the run begins, besides "
        "all learners; it waits 10 minutes for that, and asks Ray's autoscaler for room for all. Until machines come, "
        "the others share what is there; left out: all must have room",
        min=1,
    )
    device: str = _setting(
        "cpu",
        "device of the learner; with cuda each of several learners takes the next GPU of its machine",
        pattern=r"cpu|cuda(:\d+)?",
        form="cpu, cuda or cuda:N",
    )
    backend: str = _setting(
        AUTO,
        "how an update runs; auto: fused (native, without torch) if it can run the algorithm and model; else compiled "
        "on a GPU, and on the CPU if a C++ compiler is installed and the run has at least "
        f"{COMPILED_PAYS_FROM:,} steps, or {COMPILED_STEPS_PAY_FROM:,} gradient steps from a table; else eager",
        choices=(AUTO, *UPDATES.names()),
    )
    inference: str = _setting(
        AUTO,
        "what computes actions; auto: native if it can run the policy; else onnx with --device cpu; else torch",
        choices=(AUTO, *INFERENCE.names()),
    )
    policy_placement: Literal["auto", "env", "node"] = _setting(
        "auto",
        "where actions are computed; env: in each environment process; node: in policy nodes, processes that "
        "answer many environment processes in one batch; auto: env, unless a native policy of this size was measured "
        "to be faster in a node, or torch computes it on a GPU and the run is not in lock step",
    )
    policy_nodes: int = _setting(
        1,
        "with --policy_placement node: number of policy nodes; with --runtime ray, on each machine with environment "
        "processes. A rollout is answered by the one of its machine with the shortest queue when it begins; a long one "
        "chooses again after each --renew_every steps",
        min=1,
    )
    max_batch: int | None = _setting(
        None,
        "with --policy_placement node: largest number of observations that a policy node answers at once; left out: "
        "all that wait. Those of one process stay together, also if they are more",
        min=1,
        max=65536,
    )
    max_wait: float = _setting(
        0.0,
        "with --policy_placement node: seconds that a policy node waits for environment processes that will ask soon, "
        "for larger batches; 0: it takes what has arrived. A batch leaves earlier once it has --max_batch "
        "observations or all of them have asked",
        min=0,
        max=1,
    )
    threads: int | Literal["auto"] = _setting(
        "auto",
        "threads of each learner, at most one a core; auto: 2 for the fused update, which cannot use more; all free "
        "cores for image networks and wide networks; else 1",
        min=1,
        max=1024,
    )
    learners: int = _setting(
        1,
        "number of learner processes. By default each takes a part of every minibatch, and all take each step "
        "together. If an algorithm learns from a table with --sync_mode non_blocking on one machine, each has "
        "minibatches of its own. --exchange and --pace choose another way",
        min=1,
        max=12,
    )
    exchange: Literal["auto", "allreduce", "parameter_server", "gossip", "hogwild"] = _setting(
        AUTO,
        "how several learners agree; allreduce: all take each step together, down their mean gradient; "
        "parameter_server: one node applies the gradients of all, at their --pace; gossip: each takes its own steps, "
        "and after each batch the mean of its state and its neighbours'; hogwild: each adds its own steps to one "
        "shared vector without locks, so a step may be half lost, which no other rule allows; auto: parameter_server "
        "where learning from a table overlaps collecting, without --runtime ray, else allreduce",
    )
    pace: Literal["auto", "sync", "async", "lag"] = _setting(
        AUTO,
        "when a learner takes newer parameters; sync: all wait for each other at each step; async: before each "
        "gradient; lag: only once its own are more gradient steps old than --max_policy_lag minus twice the number of "
        "--learners, because two gradients of each learner may wait to be applied; async and lag "
        "need --sync_mode non_blocking; auto: async for parameter_server and hogwild with non_blocking, else sync",
    )
    compress: str = _setting(
        "none",
        "how gradients are compressed between learners (allreduce, parameter_server); int8: 8 bits a number; "
        "topk:RATIO: only this share of the numbers, the largest. What is left out is added to the next gradient",
        pattern=r"none|int8|topk:[0-9.e-]+",
        form="none, int8 or topk:RATIO such as topk:0.05",
    )
    accumulate: int = _setting(
        1,
        "split each minibatch into this many parts and average their gradients before the step; for minibatches too "
        "large for memory",
        min=1,
    )
    table_bytes: int | None = _setting(
        None,
        "largest size of the replay table in bytes, such as 4e9; it keeps as many of its --capacity rows as fit",
        min=1,
    )
    table_on: Literal["launcher", "learners"] = _setting(
        "launcher",
        "where the rows of the replay table lie on several machines; launcher: all on the launcher's machine, with a "
        "copy of its shard for each other learner; learners: those of a shard only with its learner, so that the "
        "launcher's machine does not have to hold all; then a lost machine takes its rows with it, and only a run that "
        "ends in order keeps them for a resume",
    )
    demonstrations: str | None = _setting(
        None,
        "run folder of another run, or a folder of kept episodes; this run also learns from the replay table of the "
        "other run's latest checkpoint, or from the episodes",
        form="a run folder or a folder of episodes",
    )
    demonstration_share: float = _setting(
        0.25, "share of each minibatch that comes from the --demonstrations", min=0, max=1
    )
    seed: int = _setting(
        0,
        "seed of networks, episodes and noise; makes a run repeatable with blocking",
        min=0,
        max=2**63 - 1,
        fixed="its episodes and its noise come from it",
    )
    log_dir: str = _setting(
        "./logs",
        "folder for run folders; each run makes its own in it",
        pattern=r"(?s).+",
        form="a folder",
        fixed="it continues in its own folder",
    )
    save_interval: int = _setting(50, "updates between checkpoints", min=1)
    keep_checkpoints: int = _setting(5, "number of latest checkpoints to keep; the best is kept as well", min=1)
    keep_every: int = _setting(
        0, "also keep each checkpoint whose update is a multiple of this; 0: none for that reason", min=0
    )
    log_interval: int = _setting(
        10,
        "updates between printed lines; at most one line a second, unless this is set to another number than 10; after "
        "10 s without a line, the next update has one at any rate",
        min=1,
    )
    tensorboard_axis: Literal["steps", "updates", "seconds"] = _setting(
        "steps",
        "what TensorBoard's curves are drawn over: environment steps, updates, or whole seconds of training, with "
        "those before a resume; TensorBoard calls each of them a step",
        fixed="its curves so far are over it",
    )
    tensorboard_histograms: bool = _setting(
        False,
        "also write a histogram of each layer's parameters for TensorBoard, at every checkpoint",
    )
    target_return: float | None = _setting(None, "stop once the last 100 training episodes average this return")
    eval_interval: int = _setting(
        0,
        "updates between evaluations during the run; 0: only at its end. Where an update has an evaluation and a "
        "checkpoint (--save_interval), the evaluation decides whether this checkpoint is the best",
        min=0,
    )
    eval_episodes: int = _setting(100, "greedy episodes of each evaluation; 0: none at the end of the run", min=0)
    eval_seconds: float = _setting(
        60.0,
        "seconds after which the evaluation at a run's end begins no new episode; the first 5 always begin, and every "
        "begun episode is played to its end. `penstock eval` has no such limit",
        min=1,
    )
    early_stop: int = _setting(
        0,
        "stop after this many evaluations without improvement; 0: never. In lock step (--sync_mode blocking) learning "
        "waits for each of these evaluations, so that a seed always stops at the same update",
        min=0,
    )
    max_policy_lag: int = _setting(
        10,
        "non_blocking: drop experience from a policy older than this many updates; with several learners: drop "
        "gradients from parameters older than this many gradient steps",
        min=0,
    )
    renew_every: int = _setting(
        64,
        "non_blocking: a newer policy takes over after so many steps, also in the middle of a rollout (--num_steps); "
        "fewer: experience is newer, and parameters are copied more often",
        min=1,
    )
    vector_env: bool = _setting(
        False, "the environment steps many lanes itself (gymnasium.vector)", fixed="its episodes began this way"
    )
    ignore_obs: tuple[str, ...] | None = _setting(
        None,
        "fields of a Dict or Tuple observation to leave out, such as a text; a nested field is named with all its "
        "parents, as a.b",
        form="names of observation fields, separated by commas or with a flag each",
        adds=True,
        fixed=BY_NETWORKS,
    )
    episode_metrics: tuple[str, ...] | None = _setting(
        None,
        "numbers in the info of an episode's last step, such as won,laps: each mean is reported as episode/won, of "
        f"evaluations as eval/episode/won (docs/environments.md); at most {MOST_EPISODE_METRICS}",
        pattern=r"\S(.{0,62}\S)?",
        form="names of at most 64 characters, separated by commas or with a flag each",
        adds=True,
    )
    opponents: tuple[str, ...] | None = _setting(
        None,
        "pettingzoo: one agent of each environment learns, and frozen policies play the others; self: earlier versions "
        "of this run; random: random moves; RUN or RUN@CHECKPOINT, the path of another run: its policy "
        "(docs/self-play.md); left out: all agents learn",
        pattern=r"\S(.*\S)?",
        form="self, random or paths of run folders, separated by commas or with a flag each",
        adds=True,
    )
    opponent_rule: Literal["uniform", "latest", "hard"] = _setting(
        "uniform",
        "which of the --opponents plays in an episode; uniform: each alike; latest: the newest version of this run; "
        "hard: those that are hard to beat more often",
    )
    env_timeout: float = _setting(
        60.0, "longest time in seconds of one environment step; an environment that takes longer counts as hung", min=1
    )
    bad_numbers: Literal["stop", "skip"] = _setting(
        "stop",
        "for NaN or infinity in observations or rewards; stop: the run ends; skip: the rollout is dropped and counted, "
        "and the lane is reset (non_blocking only)",
    )
    host: str = _setting(
        "127.0.0.1",
        "games: address to listen at; one that other machines can reach needs --token_file",
        form="an address",
    )
    port: int | None = _setting(None, f"games: port for HTTP; {HTTP_PORT} if neither port is given", min=1, max=65535)
    tcp_port: int | None = _setting(None, "games: port for TCP", min=1, max=65535)
    token_file: str | None = _setting(
        None, "games: file with the accepted tokens, one a line; left out: every client is accepted", form="a file"
    )
    idle_seconds: float = _setting(
        60.0,
        "games: seconds without a request after which a session has vanished, and its episode ends as truncated",
        min=1,
    )
    keep_episodes: int = _setting(
        0, "games: number of latest episodes to keep as files in the run's folder episodes; 0: none", min=0
    )
    trace: bool = _setting(
        False, "record when each node works and on what, for `penstock trace`; costs 1.5 MB a process"
    )
    max_restarts: int = _setting(
        3,
        "how often a process is restarted without progress in between; the next death ends the run; 0: the first death "
        "ends it",
        min=0,
    )
    stall_timeout: float = _setting(
        300.0,
        "seconds without progress after which a run ends; work that a node announces as long does not count",
        min=1,
    )
