"""Checks of a recording's metadata: every key the format names, unknown keys left alone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from traces.common.errors import InputError
from traces.common.json import loads
from traces.common.settings import Section, key, read, whole
from traces.recordings.schema import (
    BLOCK_SEMANTICS,
    DRAFTER_KINDS,
    ENCODINGS,
    FORMAT,
    SPLITS,
    VERSION,
)

MOST_TOKENS = 2**31  # of a vocabulary: ids are stored as int32


def _printable(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("that can be printed in one line")
    return text


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError
    return names


Text = Annotated[str, AfterValidator(_printable)]
Names = Annotated[list[Text], Field(min_length=1, max_length=256), AfterValidator(_distinct)]
Token = whole(0, MOST_TOKENS)


class _Open(Section):
    model_config = ConfigDict(extra="ignore")


class _Model(_Open):
    name: Text
    sha256: Text


class _Drafter(_Model):
    kind: Literal[DRAFTER_KINDS]


class _Generation(_Open):
    max_new_tokens: int = key(ge=1)


class _Metadata(_Open):
    format: Literal[FORMAT]
    version: Literal[VERSION]
    encoding: Literal[ENCODINGS]
    block_semantics: Literal[BLOCK_SEMANTICS]
    dtype: Text
    recorder_version: Text
    text_license: Text
    pair: Text
    shared_head: bool
    seed: int = key(ge=0)
    temperature: float = key(ge=0)
    domains: Names = key(accepted="a list of 1 to 256 distinct names")
    splits: list[str] | None = None  # the order in which `split` indexes them
    target: _Model
    drafter: _Drafter
    generation: _Generation
    vocab_size: whole(2, MOST_TOKENS)
    eos_token: Token | list[Token] | None = key(accepted="a token, a list of them, or null")
    banned_tokens: list[Token] = key(accepted="a list of tokens")

    @model_validator(mode="after")
    def _together(self) -> _Metadata:
        """Tokens are of the vocabulary; a pool row has no parent, a tree no full head."""
        ends = self.eos_token if isinstance(self.eos_token, list) else [self.eos_token or 0]
        for name, tokens in (("eos_token", ends), ("banned_tokens", self.banned_tokens)):
            if max(tokens, default=0) >= self.vocab_size:
                self.refuse(name, f"tokens in 0..{self.vocab_size - 1}")
        if self.splits not in (None, list(SPLITS)):
            self.refuse("splits", f"{list(SPLITS)}")
        if self.encoding == "pool" and self.drafter.kind != "block":
            self.refuse("encoding", f"hidden, tree with drafter.kind {self.drafter.kind}")
        if self.shared_head and self.encoding != "hidden":
            self.refuse("shared_head", f"false with encoding {self.encoding}, which has no head")
        return self


def parse_meta(text: str, source: str) -> dict[str, Any]:
    """Metadata from the JSON string of a file header, not yet checked."""
    try:
        meta = loads(text)
    except ValueError as error:
        raise InputError(f"{source}: metadata is not JSON: {error}") from None
    if not isinstance(meta, dict):
        raise InputError(f"{source}: metadata is a JSON {type(meta).__name__}, expected an object")
    return meta


def check_meta(meta: dict[str, Any], source: str) -> None:
    """Raise InputError naming the first metadata key that is missing or has a bad value."""
    read(_Metadata, meta, "metadata ", source)
