"""The live runner's settings, each key declared once; loads no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from simulator.engine.settings import (
    MOST_CLIENTS,
    MOST_REQUESTS,
    LoadSettings,
    ServerSettings,
    TraceSettings,
)
from traces.common.errors import InputError, refusal
from traces.common.settings import LARGEST_WHOLE, Many, Section, above, key, number, read, whole
from traces.recordings.schema import DRAFTER_KINDS

TASKS = (
    *("train", "record", "evaluate", "exact", "distribution", "probe", "serve", "validate"),
    "demo",
)
SIZES = ("small", "large")
DOMAINS = ("arithmetic", "report", "dialogue", "extract", "docs", "code")  # of the corpus
CORPUS_LICENSE = "Python Software Foundation License (standard library text); generated text: MIT"
LONGEST = 100_000  # most of anything that is counted here
POLICIES = ("autoregressive", "fixed_chain", "tuned_chain", "fixed_tree", "cast", "treespark")
LISTED = "a list of different policies, as in conf/policy"
HELD = "at least 4, of which one calibrates, one tunes and two are compared"
MOST_PACKED = 8192  # root and nodes of one request


def _different(values: tuple) -> tuple:
    if len(set(values)) < len(values):
        raise ValueError("every one once")
    return values


def _drafts(values: tuple[int, ...]) -> tuple[int, ...]:
    if max(values) < 2:
        raise ValueError("one of them above 1")
    return values


def _stem(value: str) -> str:
    if value != Path(value).name or value[0] == ".":
        raise ValueError("a name without folders")
    return value


DIFFERENT = (Field(min_length=1), AfterValidator(_different))
Text = Annotated[str, Field(min_length=1)]
NotBlank = Annotated[str, Field(pattern=r"\S")]
Stem = Annotated[Text, AfterValidator(_stem)]
Temperature = number(0, 10)
Count = whole(1, LONGEST)
Counts = Annotated[Many[Count], *DIFFERENT]
Packed = Annotated[Many[whole(1, MOST_PACKED)], *DIFFERENT, AfterValidator(_drafts)]
Names = Annotated[Many[str], *DIFFERENT]
Domains = Annotated[Many[Literal[DOMAINS]], *DIFFERENT]


class DemoKeys(Section):
    """Texts on the terminal as they are written."""

    PREFIX: ClassVar[str] = "demo."

    prompt: NotBlank | None = key(
        None, 'a text, such as demo.prompt="A recipe for soup:"; null: those of `prompts`'
    )
    count: Count | None = key(
        None, "texts; null: one of every domain, or the first four lines of `prompts`"
    )


class ExactKeys(Section):
    """Rounds of every policy against the simulator's replay, and texts against plain decoding."""

    PREFIX: ClassVar[str] = "exact."

    policies: Names = key(POLICIES, accepted=LISTED)
    concurrency: Counts = (1, 8)
    prompts_per_domain: whole(4, LONGEST) = key(
        12, "half of them are compared, the rest is fitted on", accepted=HELD
    )
    domains: Domains = ("arithmetic", "report", "docs", "code")
    seed: Count = 40961


class ProbeKeys(Section):
    """A latency profile of the pair on this machine."""

    PREFIX: ClassVar[str] = "probe."

    name: Stem | None = key(None, "null: pair, drafter and device")
    shape: Literal["qwen3_4b", "qwen3_8b", "tiny"] | None = key(
        None, "qwen3_4b, qwen3_8b or tiny: random weights in those sizes, with a five-layer drafter"
    )
    batches: Counts = (1, 2, 4, 8, 16, 32)
    packed_per_request: Packed = key(
        (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128), "root and draft nodes"
    )
    prefixes: Counts = key((32, 96, 192), "cached tokens of every request")
    prompt_tokens: Counts = key((8, 16, 32, 64, 128, 192, 256), "of timed prompts")
    edges: bool | None = key(
        None, "also totals next to multiples of 16, 64, 128 and graph sizes; null: on cuda"
    )
    edge_tokens: Count = key(1024, "the largest of those totals")
    warmup: Count = key(2, "iterations before each visit of a cell")
    repeats: Count = key(25, "of every cell, over all passes")
    passes: Count = key(3, "over all cells, each in its own order")
    isotonic: bool = key(True, "pool medians so that cost never falls as tokens grow")
    keep_samples: bool = key(False, "keep NAME.partial.jsonl, all samples")
    time_s: above(0, 1e9) | None = key(
        None, "stop after so long, exit status 0; the same command goes on"
    )
    finish: bool = key(False, "measure no more: the profile of what is in NAME.partial.jsonl")
    seed: Count = 7


class ValidateKeys(Section):
    """Live runs against predictions, with a profile and host terms measured beside them."""

    PREFIX: ClassVar[str] = "validate."

    policies: Names = key(POLICIES, accepted=LISTED)
    concurrency: Counts = (1, 4, 16)
    domains: Domains = ("arithmetic", "report", "docs", "code")
    prompts_per_domain: whole(4, LONGEST) = key(
        16, "a quarter calibrates, a quarter tunes, half is judged", accepted=HELD
    )
    repeats: Count = key(8, "of every run; the probe's passes lie between them")
    batches: Counts = (1, 2, 4, 8, 16)
    packed_per_request: Packed = (1, 4, 6, 8, 12, 16, 32, 64, 128)
    prefixes: Counts = (48, 128)
    prompt_tokens: Counts = (8, 16, 32, 64, 96, 128, 192)
    probe_warmup: Count = 1
    probe_repeats: Count = key(3, "of every cell in each pass")
    seed: Count = 53


class DistributionKeys(Section):
    """Tokens under every policy against plain sampling."""

    PREFIX: ClassVar[str] = "distribution."

    policies: Names = key(POLICIES[1:], accepted=LISTED)
    domains: Domains = ("arithmetic", "report", "docs", "code")
    samples: Count = key(4000, "of each side, over all prompts")
    trials: Count = key(10, "of a verifier that is known to be wrong")
    seed: Count = 7


class TrainKeys(Section):
    """What made the shipped pair."""

    PREFIX: ClassVar[str] = "train."

    seed: Count = 7
    vocab_size: Count = 2048
    tokenizer_examples: Count = 20000
    row_tokens: Count = 320
    target_steps: Count = 2400
    target_batch: Count = 10
    draft_rows: Count = 4500
    draft_max_new_tokens: Count = 128
    block_steps: Count = 1800
    semi_autoregressive_steps: Count = key(1400, "stopped early: see the model card")
    schedule_steps: Count = key(3000, "of the semi-autoregressive drafter's learning rate")
    drafter_rows: Count = 8
    drafter_anchors: Count = 16
    threads: Count = 2


class CorpusKeys(Section):
    """How much of the small pair's corpus is recorded."""

    domains: Domains = ("arithmetic", "report", "docs", "code")
    sequences_per_domain: Count
    sampled_sequences_per_domain: Count = key(help="above temperature 0")
    max_new_tokens: Count
    shard_mb: Count

    def count(self, temperature: float) -> int:
        """Sequences per domain at a temperature."""
        return self.sampled_sequences_per_domain if temperature else self.sequences_per_domain


class RecordKeys(Section):
    """What is recorded."""

    PREFIX: ClassVar[str] = "record."

    small: CorpusKeys = CorpusKeys(
        sequences_per_domain=30, sampled_sequences_per_domain=15, max_new_tokens=60, shard_mb=24
    )
    large: CorpusKeys = CorpusKeys(
        sequences_per_domain=400, sampled_sequences_per_domain=400, max_new_tokens=64, shard_mb=100
    )
    temperatures: Annotated[Many[Temperature], *DIFFERENT] = (0.0, 1.0)
    pool: Count = 16
    seed: Count = 20261
    license: NotBlank = key("not stated", "of the text in a prompts file", accepted="a text")


class LiveSettings(LoadSettings):
    """Every key of ``conf/real_runner.yaml`` but `validate`, no field of a model."""

    policy: Mapping[str, Any]
    trace: TraceSettings
    latency: Mapping[str, Any]
    server: ServerSettings
    task: Literal[TASKS] = key(
        "record", "record, serve, demo, exact, distribution, probe, validate, train or evaluate"
    )
    pair: Text | None = key(None, "null: the shipped small pair", accepted="a folder, or null")
    target: Text | None = key(None, "Qwen3 or Llama", accepted="a folder or a hub id, or null")
    drafter: Text = key("semi_autoregressive", "or block; or a DFlash or DSpark checkpoint")
    device: Literal["auto", "cpu", "cuda"] = key("auto", "cpu, cuda; auto: cuda where there is one")
    dtype: Literal["float32", "float64", "bfloat16"] = key(
        "float32", "float64 (exactness), bfloat16 (CUDA)"
    )
    threads: Count | None = key(None, "of PyTorch on the CPU; null: its own choice")
    packing: Literal["ragged", "dense"] = key(
        "ragged", "of trees in the verify pass; dense: padded to the largest"
    )
    graphs: bool = key(
        False,
        "replay captured CUDA graphs in the verify pass; without CUDA, only pad to their sizes",
    )
    output: Text | None = key(None, "folder to write to", accepted="a folder, or null")
    prompts: Text | None = key(None, accepted="a JSONL file, or null")
    temperature: Temperature = key(0.0, "of serve, demo, exact, probe")
    max_new_tokens: Count = key(60, "of serve, demo, exact; record has its own")
    max_concurrency: whole(1, MOST_CLIENTS) | None = 8
    num_prompts: whole(1, MOST_REQUESTS) | None = key(
        None, "null: every line of `prompts` once, or as many as the simulator"
    )
    seed: whole(0, LARGEST_WHOLE) = key(
        0, "order and arrivals; texts above temperature 0 hang on record.seed, as in recordings"
    )
    goodput: Any = key(None, 'for example "ttft:500 tpot:50", in ms')
    size: Literal[SIZES] = key(
        "small", "record: small (what ships) or large (at least 200 report prompts per domain)"
    )
    demo: DemoKeys = DemoKeys()
    exact: ExactKeys = ExactKeys()
    probe: ProbeKeys = ProbeKeys()
    distribution: DistributionKeys = DistributionKeys()
    train: TrainKeys = TrainKeys()
    record: RecordKeys = RecordKeys()

    @property
    def corpus(self) -> CorpusKeys:
        """How much is recorded, by `size`."""
        return self.record.small if self.size == "small" else self.record.large

    @model_validator(mode="after")
    def _together(self) -> LiveSettings:
        if self.target is None and self.drafter not in DRAFTER_KINDS:
            self.refuse("drafter", ", ".join(DRAFTER_KINDS))
        if self.demo.prompt is not None and self.prompts is not None:
            self.refuse("prompts", "null with demo.prompt")
        if self.probe.passes > self.probe.repeats:
            raise InputError(
                f"probe.passes is {self.probe.passes}; accepted: 1 to probe.repeats, "
                f"{self.probe.repeats}"
            )
        for name in ("pair", "target") if self.probe.shape is not None else ():
            if getattr(self, name) is not None:
                self.refuse(name, f"null with probe.shape {self.probe.shape}")
        return self


def choice(key: str, value: Any, accepted: Sequence[str]) -> str:
    """`value` if it is one of the names; InputError naming the key otherwise."""
    if not isinstance(value, str) or value not in accepted:
        raise InputError(refusal(key, value, ", ".join(accepted), accepted))
    return value


def make_folder(path: Path) -> None:
    """Make a task's folder before it works for long; InputError if that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output is {str(path)!r} ({error.strerror}); accepted: a folder that can be made"
        ) from None


def live_settings(config: Mapping[str, Any]) -> LiveSettings:
    """The settings of a composed configuration.

    Raises:
        InputError: the first key that is unknown or has a value that is not accepted.
    """
    read(ValidateKeys, config["validate"])
    return read(LiveSettings, {name: config[name] for name in config if name != "validate"})


SEARCH: list[str] = []  # overrides that make the user's own folder of configurations known


def policy_nodes(key: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The `policy` node of every name, as the command line would compose it."""
    from hydra import compose
    from omegaconf import OmegaConf

    nodes = []
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in ("null", "true", "false"):
            raise InputError(f"{key} holds {name!r}; accepted: names as in conf/policy")
        composed = compose("real_runner", [f"policy={name}", *SEARCH])
        nodes.append(OmegaConf.to_container(composed, resolve=True)["policy"])
    return nodes


def with_fixed_sets(nodes: list[dict[str, Any]], temperature: float) -> list[dict[str, Any]]:
    """The policies with fixed candidate sets in place of sampled drafts.

    A sampled draft is replayed from its law given the text, so above temperature 0 its live rounds
    agree with replayed ones in law only: round by round there is nothing to compare.
    """
    if not temperature:
        return nodes
    return [node | {"draws": "fixed"} if "draws" in node else node for node in nodes]
