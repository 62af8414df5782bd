"""The task file's `dataset:` and `vocabulary:` sections.

docs/write_settings.py makes the tables of docs/log-fields.md from the descriptions and units.
"""

from datetime import date
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic.config import JsonDict

from beam_jobs.sources.log_readers import READERS
from features.errors import InputError
from features.task import Section, Task


def _unit(name: str) -> JsonDict:
    return {"unit": name}


class Splits(Section):
    """How groups are split: by a hash of the query, by the time of the impression, or by both.

    query: shares are of the distinct queries; all groups of a query are in one split.
    time: train before `valid_from`, valid before `test_from`, then test; shares are not used.
    query_and_time: queries are split by their shares; train and valid use groups before `test_from`, test those after
        it, so that test has later groups of unseen queries. Other groups are dropped.
    """

    by: Literal["query", "time", "query_and_time"] = Field(
        default="query", description="what decides the split of a query group"
    )
    train: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="train's share of the distinct queries; not used with `time`",
        json_schema_extra=_unit("share"),
    )
    valid: float = Field(default=0.1, ge=0, le=1, description="valid's share", json_schema_extra=_unit("share"))
    test: float = Field(
        default=0.1, ge=0, le=1, description="test's share; the three sum to 1", json_schema_extra=_unit("share")
    )
    valid_from: date | None = Field(
        default=None,
        description="first day of valid; required with `time`, else not allowed",
        json_schema_extra=_unit("day, from 00:00 UTC"),
    )
    test_from: date | None = Field(
        default=None,
        description="first day of test; required with `time` and `query_and_time`, else not allowed",
        json_schema_extra=_unit("day, from 00:00 UTC"),
    )

    @model_validator(mode="after")
    def _whole(self) -> "Splits":
        if abs(self.train + self.valid + self.test - 1) > 1e-6:
            raise ValueError(f"train + valid + test is {self.train + self.valid + self.test:g}, expected 1")
        wanted = {"query": (), "time": ("valid_from", "test_from"), "query_and_time": ("test_from",)}[self.by]
        given = tuple(name for name in ("valid_from", "test_from") if self.model_dump()[name] is not None)
        if given != wanted:
            raise ValueError(f"by: {self.by} takes {' and '.join(wanted) or 'no date'}, found {given or 'none'}")
        if self.valid_from and self.test_from and self.valid_from >= self.test_from:
            raise ValueError(f"valid_from {self.valid_from} is not before test_from {self.test_from}")
        return self


class Windows(Section):
    """Attribution windows, in hours after the impression."""

    click: float = Field(
        default=1.0, gt=0, description="longest time from impression to click", json_schema_extra=_unit("hours")
    )
    add_to_cart: float = Field(
        default=24.0, gt=0, description="the same for an add to cart", json_schema_extra=_unit("hours")
    )
    purchase: float = Field(
        default=168.0, gt=0, description="the same for a purchase", json_schema_extra=_unit("hours")
    )
    refund: float = Field(
        default=720.0,
        gt=0,
        description="the same for a return or a cancellation of a purchase",
        json_schema_extra=_unit("hours"),
    )

    def milliseconds(self) -> dict[str, int]:
        """Returns interaction type -> window in milliseconds."""
        return {kind: int(hours * 3_600_000) for kind, hours in self.model_dump().items()}


class Limits(Section):
    """Shares of lost events above which the job fails; the former dataset stays."""

    malformed: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="unreadable lines above which the job fails",
        json_schema_extra=_unit("share of all lines"),
    )
    late: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="late interactions above which the job fails",
        json_schema_extra=_unit("share of all interactions"),
    )
    unmatched: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="unmatched interactions above which the job fails",
        json_schema_extra=_unit("share of all interactions"),
    )
    capped: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="capped interactions above which the job fails",
        json_schema_extra=_unit("share of all interactions"),
    )


class DatasetOptions(Section):
    """`dataset:`, the options of building a dataset."""

    reader: str = Field(default="native", description=f"the kind of log: {', '.join(f'`{name}`' for name in READERS)}")
    locale: str = Field(default="", description="use the impressions of this locale only, such as en-GB; empty: all")
    look_back_days: int = Field(
        default=7,
        ge=0,
        le=3650,
        description="days before `--date` whose events are used too",
        json_schema_extra=_unit("days"),
    )
    splits: Splits = Splits()
    windows_hours: Windows = Windows()
    limits: Limits = Limits()
    min_items: int = Field(
        default=2, ge=1, description="usable items that a query group needs", json_schema_extra=_unit("items")
    )
    max_items: int = Field(
        default=200,
        ge=1,
        description="items that a query group keeps, by position; at least `min_items`",
        json_schema_extra=_unit("items"),
    )
    max_groups_per_query: int | None = Field(
        default=None,
        ge=1,
        description="of a query with more groups, a sample of this size is used; null: no limit",
        json_schema_extra=_unit("groups"),
    )
    max_requests_per_hour: int | None = Field(
        default=None,
        ge=1,
        description="a user with more distinct requests in a clock hour (UTC) is a bot; null: no limit",
        json_schema_extra=_unit("requests"),
    )
    min_distinct_users: int = Field(
        default=3,
        ge=1,
        description="users that a query or a categorical value needs before a manifest, vocabulary or model lists it",
        json_schema_extra=_unit("users"),
    )
    dead_letter_days: int = Field(
        default=30,
        ge=0,
        description="age at which dead letters are deleted; 0 writes none",
        json_schema_extra=_unit("days"),
    )
    shards: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="maximum files per view and split; 0: one per 32 MB of logs, and at least four per local worker",
        json_schema_extra=_unit("files"),
    )

    @field_validator("reader")
    @classmethod
    def _is_known(cls, reader: str) -> str:
        if reader not in READERS:
            raise ValueError(f"expected one of {', '.join(READERS)}")
        return reader

    @model_validator(mode="after")
    def _room_for_a_group(self) -> "DatasetOptions":
        if self.max_items < self.min_items:
            raise ValueError(f"max_items {self.max_items} is below min_items {self.min_items}: no group would be left")
        return self


class VocabularyOptions(Section):
    """`vocabulary:`, the options of learning the WordPiece vocabulary."""

    pieces: int = Field(
        default=8000,
        ge=64,
        le=200_000,
        description="maximum vocabulary size, special pieces included",
        json_schema_extra=_unit("pieces"),
    )
    min_count: int = Field(
        default=2, ge=1, description="rarer words are ignored", json_schema_extra=_unit("occurrences")
    )
    max_word_characters: int = Field(
        default=40, ge=1, le=100, description="longer words are ignored", json_schema_extra=_unit("characters")
    )
    max_alphabet: int = Field(
        default=1000,
        ge=1,
        description="most frequent characters that are learned; words with others are ignored",
        json_schema_extra=_unit("characters"),
    )


def seed_of(task: Task) -> int:
    """Returns the task's `seed:`, 0 by default. Errors: InputError."""
    seed: Any = task.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"seed is {seed!r}, expected a whole number. Correct it in the task file")
    return seed
