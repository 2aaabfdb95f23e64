"""One RunConfig, composed of each part's own small config: TOML in, `section.key=value` from the command line on top.

Boundary: configuration is read, checked and written here and stops at the constructors of the parts. Nothing in this
module imports torch.
"""

from __future__ import annotations

import difflib
import json
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from tomlkit.items import Table

from t1.errors import ConfigError
from t1.harness.config import TerminalConfig
from t1.training.config import PPOConfig, SFTConfig
from t1.training.parallel.layout import Layout

COMMAND_LINE = "command line"


class Section(BaseModel):
    """A part of the configuration: immutable, and strict about its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RunSection(Section):
    """The run as a whole."""

    seed: int = Field(0, ge=0)
    """Decides tasks, demonstrations, initial weights and draws."""
    steps: int = Field(90, ge=1)
    """PPO steps."""
    budget_s: float = Field(840.0, ge=0)
    """Seconds for the whole quickstart: PPO begins no step that would leave no time for the last evaluation.
    0 = no limit."""
    checkpoint_every: int = Field(10, ge=1)
    """Steps between checkpoints; the last step always writes one."""
    keep_checkpoints: int = Field(2, ge=1)
    """Older checkpoints are removed, but never the last complete one."""
    token_stats_mb: float = Field(16.0, ge=0)
    """Megabytes a PPO step for what the trainer said of each token (log-probability, value, advantage, return), which
    `t1 view` shows; of more rollouts than fit, some are left out, evenly. 0 = nothing is kept."""
    threads: int = Field(0, ge=0)
    """torch threads of the trainers; 0 = one per core, at most two. The engine leaves one core to the sandboxes."""


class TasksSection(Section):
    """The suite that is trained and evaluated on."""

    path: str = ""
    """A suite: task directories, or `train/` and `heldout/` of them. Empty = generate `shell-basics` in the run."""
    num_train: int = Field(900, ge=1)
    """Generated training tasks."""
    num_heldout: int = Field(600, ge=1)
    """Generated held-out tasks."""
    min_requirements: int = Field(1, ge=1)
    max_requirements: int = Field(5, ge=1)


class ModelSection(Section):
    """The policy at the start."""

    path: str = ""
    """A local Hugging Face directory. Empty = the small Mixture-of-Experts base that ships with T1."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    max_context: int = Field(768, ge=16)
    """Longest prompt + completion, in tokens."""


class EngineSection(Section):
    """What samples: the engine in this process, or vLLM or SGLang servers that already run."""

    kind: Literal["embedded", "vllm", "sglang"] = "embedded"
    urls: tuple[str, ...] = ()
    """Addresses of the servers; sessions are spread over several."""
    weights_dir: str = ""
    """Where weights are published; the servers must see it under the same path. Empty = a temporary directory here."""
    preflight: Literal["full", "light", "off"] = "light"
    """Prove the servers fit before anything is sampled; `full` publishes changed weights too, then the real ones."""
    request_s: float = Field(600.0, gt=0)
    """Longest wait for one completion."""
    publish_s: float = Field(600.0, gt=0)
    """Longest wait for weights to be loaded."""


class AgentSection(Section):
    """Who works on the tasks: the token-native harness, or an unmodified agent through the gateway."""

    name: str = "terminal"
    """`terminal` (token-native), `terminus-2`, `mini-swe-agent`, `claude-code`, `codex`, or `harbor:NAME` for another
    agent of Harbor's. The limits and the sampling of `[harness]` hold for all of them."""
    binary: str = ""
    """The agent's program, where it works inside the sandbox (`claude-code`, `codex`)."""
    options: dict[str, Any] = {}
    """Of Harbor's agents: keyword arguments of the agent."""
    port: int = Field(8377, ge=1024, le=65535)
    """Where an agent inside a sandbox finds the gateway, on its own loopback."""
    family: str = "auto"
    """Of the chat template: how tool calls and reasoning are written. `auto` recognises it."""


class ClusterSection(Section):
    """Where the run's processes live. The loop does not know; see docs/cluster.md."""

    kind: Literal["local", "ray"] = "local"
    """`local`: processes of this machine. `ray`: spread over a Ray cluster, by their needs (`pip install t1[ray]`)."""
    address: str = ""
    """Of a Ray cluster that runs. Empty = what RAY_ADDRESS names, else one of this machine alone."""
    workers: int = Field(0, ge=0)
    """Processes that collect rollouts. 0 = the run's own process (`local`), or as many as there is room for (`ray`)."""
    worker_cpus: float = Field(1.0, gt=0)
    worker_memory_mb: int = Field(0, ge=0)
    """What Ray sets aside for a worker and its sandboxes. 0 = it is placed by cores alone."""
    trials_per_worker: int = Field(16, ge=1)
    """Attempts that one worker has under way at most."""
    engines: int = Field(1, ge=1)
    """Embedded engines, each a process; of engines that were found by URL there are as many as `engine.urls`."""
    engine_cpus: float = Field(1.0, gt=0)
    engine_gpus: float = Field(0.0, ge=0)
    silent_s: float = Field(60.0, gt=0)
    """A process without a pulse for so long is taken to hang: it is killed and started anew."""


class PoolSection(Section):
    """What bounds the sandboxes beyond `rollouts.max_concurrent`, for a provider that counts, charges or is slow."""

    max_open: int = Field(0, ge=0)
    """Agents' sandboxes that live at the same time; a pristine one comes on top. 0 = no bound."""
    opens_per_s: float | None = Field(None, gt=0)
    """The provider's rate limit. None = no limit."""
    wait_s: float = Field(600.0, gt=0)
    """How long an open waits for a place before it counts as an infrastructure failure."""
    lease_s: float | None = Field(None, gt=0)
    """How long one sandbox may live: then it is closed, whoever holds it. None = a day."""
    num_warm: int = Field(0, ge=0)
    """Sandboxes kept ready for each task that was opened lately, so that the next rollout of a group need not wait."""
    ready_s: float = Field(60.0, gt=0)
    """How long one waits ready before it is closed unused."""


class TrainerSection(Section):
    """The processes that learn. One is the run's own; several are processes of `cluster.kind`. See docs/cluster.md."""

    ranks: int = Field(1, ge=1)
    """Processes that share the policy, and the critic unless it has its own."""
    critic_ranks: int = Field(0, ge=0)
    """Further processes, which have the critic to themselves. 0 = it shares the policy's."""
    experts: int = Field(1, ge=1)
    """Ranks over which the experts of a layer are spread; divides `ranks`."""
    context: int = Field(1, ge=1)
    """Ranks that share the tokens of one pack; divides `ranks`."""
    cpus: float = Field(1.0, gt=0)
    """Of a rank: so many threads does its numerical work get."""
    memory_mb: int = Field(0, ge=0)
    """What Ray sets aside for a rank. 0 = it is placed by cores and GPUs alone."""
    gpus: float = Field(0.0, ge=0)
    """Of a rank: 1 = CUDA and NCCL, 0 = the CPU and gloo."""
    start_s: float = Field(600.0, gt=0)
    """For all ranks to start, meet and read their weights."""
    step_s: float = Field(7200.0, gt=0)
    """Longest wait for one step, checkpoint or publish of the ranks; one that is late ends all."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        try:
            Layout(self.ranks, self.experts, self.context)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def alone(self) -> bool:
        """Whether the run's own process learns."""
        return self.ranks == 1 and not self.critic_ranks and not self.gpus


class SandboxesSection(Section):
    """Where the policy's commands run."""

    kind: Literal["namespaces", "containers", "harbor"] = "namespaces"
    """Linux namespaces (no daemon, no image), podman or docker, or whatever Harbor drives. See docs/sandboxes.md."""
    root: str = ""
    """Directory for the sandboxes' files. Empty = the machine's temporary directory."""
    rootfs: str = ""
    """Of namespaces: a directory or an image's archive in place of the host's /usr."""
    image: str = ""
    """Of containers and harbor: what a task starts from that brings neither a Dockerfile nor docker_image."""
    network: Literal["none", "listed", "all", "provider"] = "none"
    """What an agent may reach: nothing, the hosts that its task lists, or all public ones if its task asks for it. Of
    harbor, `provider`: whatever the provider does when nothing is asked of it."""
    environment: str = ""
    """Of harbor: a provider's name (`docker`, `podman`, `daytona`, `modal`, `e2b`, `gke`, ...), or `module:Class`.
    Empty = docker."""
    options: dict[str, Any] = {}
    """Of harbor: keyword arguments of the environment."""
    python: str = ""
    """Of harbor: the interpreter that has it. Empty = $T1_HARBOR_PYTHON, this one, or `.venv-harbor` here."""
    pool: PoolSection = PoolSection()


class RolloutsSection(Section):
    """How experience is collected."""

    tasks_per_step: int = Field(128, ge=1)
    group_size: int = Field(1, ge=1)
    """Rollouts per task and step."""
    max_concurrent: int = Field(128, ge=1)
    """Attempts under way at once."""
    max_attempts: int = Field(3, ge=1)
    """Launches before an infrastructure failure is final."""
    watchdog_s: float | None = Field(None, gt=0)
    """Longest wait without a single completed rollout. None = what all launches of the slowest task may take."""
    source: Literal["lockstep", "lookahead"] = "lockstep"
    """`lookahead` goes on launching while the trainer works, at most `max_lag` steps ahead."""
    admission: Literal["carry", "first", "all"] = "carry"
    """What becomes of trials that are not finished when a batch is full: `carry` admits them later, `first` drops
    them (biased: the hardest are the slowest), `all` waits for them."""
    oversample: float = Field(1.0, ge=1)
    """Trials launched for every rollout that a step needs."""
    max_lag: int = Field(1, ge=0)
    """Steps that a rollout may be older than the weights that learn from it."""
    max_failure_share: float = Field(0.5, gt=0, le=1)
    """The run stops when more of its last attempts than this were spoiled by the infrastructure."""


class CostSection(Section):
    """Prices, in any one currency. What is zero costs nothing."""

    input_per_million: float = Field(0.0, ge=0)
    """For a million prompt tokens that were fed."""
    cached_per_million: float = Field(0.0, ge=0)
    """For a million prompt tokens that the engine's cache already had."""
    output_per_million: float = Field(0.0, ge=0)
    """For a million sampled tokens."""
    engine_per_hour: float = Field(0.0, ge=0)
    """For an hour that one request keeps the engine busy."""
    sandbox_per_hour: float = Field(0.0, ge=0)
    """For an hour that one sandbox is open."""


class RewardSection(Section):
    """Design law 5: passed assertions over one number for the whole run."""

    kind: Literal["dense", "binary"] = "dense"
    normalizer: float | None = Field(None, gt=0)
    """None = the largest assertion count of the training pool. Written into the run; a resume may not change it."""
    max_fallback_share: float = Field(0.02, ge=0, le=1)
    """The run warns above this share of rewards that fell back to the binary outcome."""
    tamper: Literal["zero", "record", "drop"] = "zero"
    """What becomes of a reward where the agent tampered with its verification. Evidence is recorded in any case."""
    partial_reports: bool = True
    """A verifier that runs out of time but left a readable report counts for what had passed by then."""


class DemotionSection(Section):
    """When attempts show that a task is no good: it leaves the pool, and another takes its place."""

    min_attempts: int = Field(4, ge=1)
    """Attempts before any rule speaks."""
    tampered_share: float = Field(0.5, gt=0, le=1)
    """Attempts with evidence of tampering, from this share on."""
    unsteady_share: float = Field(0.5, gt=0, le=1)
    """Attempts whose verdict could not be had, had no report, or had other assertions than before."""
    impossible_after: int = Field(64, ge=0)
    """Attempts of which none passed an assertion. 0 = such a task stays."""


class TitoSection(Section):
    """How turns become the training stream."""

    keep: Literal["tokens", "text"] = "tokens"
    """What is kept of a completion: the ids that were sampled, or its text, which is encoded again for the next prompt
    and for training, as in a stack without TITO. `text` has no routes to replay and fails the audit; only to measure
    what that costs."""
    on_residual: Literal["accept", "split"] = "accept"
    """`split` is exact: a turn whose context was not what the sampler saw opens a new segment."""


class EvaluationSection(Section):
    """How a checkpoint is measured."""

    num_tasks: int = Field(600, ge=1)
    """Held-out tasks, the same for every stage."""
    rollouts_per_task: int = Field(1, ge=1)
    seed: int = Field(1000, ge=0)


class TrackerSection(Section):
    """Where metrics go, beside metrics.jsonl."""

    tensorboard: bool = False
    also: tuple[Literal["tensorboard", "wandb", "trackio", "mlflow"], ...] = ()
    """Trackers beside metrics.jsonl; each needs the extra of its name. Their trouble never stops a run."""


class RunConfig(Section):
    """Everything that a run depends on."""

    run: RunSection = RunSection()
    tasks: TasksSection = TasksSection()
    model: ModelSection = ModelSection()
    engine: EngineSection = EngineSection()
    harness: TerminalConfig = TerminalConfig()
    agent: AgentSection = AgentSection()
    sandboxes: SandboxesSection = SandboxesSection()
    cluster: ClusterSection = ClusterSection()
    trainer: TrainerSection = TrainerSection()
    rollouts: RolloutsSection = RolloutsSection()
    cost: CostSection = CostSection()
    reward: RewardSection = RewardSection()
    demotion: DemotionSection = DemotionSection()
    tito: TitoSection = TitoSection()
    sft: SFTConfig = SFTConfig()
    ppo: PPOConfig = PPOConfig()
    evaluation: EvaluationSection = EvaluationSection()
    tracker: TrackerSection = TrackerSection()


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration in the TOML file at `path` (None = defaults) with `section.key=value` overrides on top."""
    raw = {} if path is None else _read_toml(path)
    changed = [_apply(raw, override) for override in overrides]
    return check_config(raw, source=str(path or "defaults"), overridden=changed)


def check_config(raw: Mapping[str, Any], *, source: str, overridden: Sequence[str] = ()) -> RunConfig:
    """Validate raw values; the first mistake becomes one line that names its place and the nearest right key."""
    try:
        # JSON mode: strict about types, yet a string may stand for an enum and a list for a tuple.
        return RunConfig.model_validate_json(json.dumps(raw, default=str), strict=True)
    except ValidationError as errors:
        first, *others = errors.errors()
        dotted = ".".join(str(part) for part in first["loc"])
        typed = any(f"{key}.".startswith(f"{dotted}.") for key in overridden)
        place = COMMAND_LINE if typed else source
        more = f" (and {len(others)} more)" if others else ""
        raise ConfigError(f"{place}: {_explain(dotted, first)}{more}") from None


def _explain(dotted: str, error: Any) -> str:
    """One mistake in words."""
    if error["type"] == "extra_forbidden":
        near = nearest_key(dotted)
        return f"{dotted}: unknown key" + (f"; did you mean {near}?" if near else "")
    reason = error["msg"][0].lower() + error["msg"][1:]
    return f"{dotted}: {reason}, got {json.dumps(error['input'], default=str)}"


def nearest_key(dotted: str) -> str | None:
    """The existing key that looks most like `dotted`: among its siblings first, then by last name, then anywhere."""
    keys = config_keys()
    every = [*keys, *{key.rpartition(".")[0] for key in keys} - {""}]
    parent, _, name = dotted.rpartition(".")
    siblings = [key for key in every if key.rpartition(".")[0] == parent]
    for candidates, word, cutoff in (
        ({key.rpartition(".")[2]: key for key in siblings}, name, 0.6),
        ({key.rpartition(".")[2]: key for key in keys}, name, 0.8),
        ({key: key for key in every}, dotted, 0.5),
    ):
        if match := difflib.get_close_matches(word, candidates, n=1, cutoff=cutoff):
            return candidates[match[0]]
    return None


def config_keys() -> list[str]:
    """Every dotted key that holds a value, in order."""
    return list(_keys(RunConfig, ""))


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = _section_of(field.annotation)
        if inner is None:
            yield prefix + name
        else:
            yield from _keys(inner, f"{prefix}{name}.")


def _section_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, if it holds one."""
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file, or say in one line what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.toml")], n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise ConfigError(f"{path}: no such file{hint}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from None


def _apply(raw: dict[str, Any], override: str) -> str:
    """Put one `section.key=value` into `raw`; returns the dotted key."""
    dotted, equals, text = override.partition("=")
    dotted = dotted.strip()
    if not equals or not dotted or not all(dotted.split(".")):
        raise ConfigError(f"{COMMAND_LINE}: {override!r} is not of the form section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string: no quoting inside quoting
    *parents, name = dotted.split(".")
    place = raw
    for parent in parents:
        inner = place.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{COMMAND_LINE}: {dotted}: {parent} is a value, not a section")
        place = inner
    place[name] = value
    return dotted


def write_config(config: RunConfig, path: Path) -> None:
    """Write every value, the defaults too, each with its description as a comment."""
    document = tomlkit.document()
    document.add(tomlkit.comment("The configuration as run. `t1 train CONFIG section.key=value` changes one value."))
    for name in RunConfig.model_fields:
        document.add(tomlkit.nl())
        document.add(name, _table(getattr(config, name)))
    path.write_text(tomlkit.dumps(document), encoding="utf-8")


def _table(section: BaseModel) -> Table:
    """One section as a TOML table; None is an absent key."""
    table = tomlkit.table()
    values = section.model_dump(mode="json")
    for name, field in type(section).model_fields.items():
        inner = getattr(section, name)
        if isinstance(inner, BaseModel):
            table.add(name, _table(inner))
            continue
        for line in (field.description or "").splitlines():
            table.add(tomlkit.comment(line))
        if values[name] is None:
            table.add(tomlkit.comment(f"{name} is not set"))
        else:
            table.add(name, values[name])
    return table


def differing_keys(old: RunConfig, new: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Dotted key → (old, new) of every value that differs."""
    differences = {}
    for key in config_keys():
        before, after = old, new
        for part in key.split("."):
            before, after = getattr(before, part), getattr(after, part)
        if before != after:
            differences[key] = (before, after)
    return differences
