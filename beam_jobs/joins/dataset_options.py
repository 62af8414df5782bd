"""The task file's `dataset:` and `vocabulary:` sections.

`make settings` writes the tables of docs/log-fields.md from the fields below. The string in an `Annotated` type is the
field's unit.
"""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from beam_jobs.sources.log_readers import READERS
from features.errors import InputError
from features.task import Section, Task


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
    train: Annotated[float, "share"] = Field(
        default=0.8,
        ge=0,
        le=1,
        description="train's share of the distinct queries; not used with `time`",
    )
    valid: Annotated[float, "share"] = Field(default=0.1, ge=0, le=1, description="valid's share")
    test: Annotated[float, "share"] = Field(default=0.1, ge=0, le=1, description="test's share; the three sum to 1")
    valid_from: Annotated[date | None, "day, from 00:00 UTC"] = Field(
        default=None,
        description="first day of valid; required with `time`, else not allowed",
    )
    test_from: Annotated[date | None, "day, from 00:00 UTC"] = Field(
        default=None,
        description="first day of test; required with `time` and `query_and_time`, else not allowed",
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

    click: Annotated[float, "hours"] = Field(default=1.0, gt=0, description="longest time from impression to click")
    add_to_cart: Annotated[float, "hours"] = Field(default=24.0, gt=0, description="the same for an add to cart")
    purchase: Annotated[float, "hours"] = Field(default=168.0, gt=0, description="the same for a purchase")
    refund: Annotated[float, "hours"] = Field(
        default=720.0,
        gt=0,
        description="the same for a return or a cancellation of a purchase",
    )

    def milliseconds(self) -> dict[str, int]:
        """Returns interaction type -> window in milliseconds."""
        return {kind: int(hours * 3_600_000) for kind, hours in self.model_dump().items()}


class Limits(Section):
    """Shares of lost events above which the job fails; the former dataset stays."""

    malformed: Annotated[float, "share of all lines"] = Field(
        default=0.01,
        ge=0,
        le=1,
        description="unreadable lines above which the job fails",
    )
    late: Annotated[float, "share of all interactions"] = Field(
        default=0.5,
        ge=0,
        le=1,
        description="late interactions above which the job fails",
    )
    unmatched: Annotated[float, "share of all interactions"] = Field(
        default=0.5,
        ge=0,
        le=1,
        description="unmatched interactions above which the job fails",
    )
    capped: Annotated[float, "share of all interactions"] = Field(
        default=0.5,
        ge=0,
        le=1,
        description="capped interactions above which the job fails",
    )


class DatasetOptions(Section):
    """`dataset:`, the options of building a dataset."""

    reader: str = Field(default="native", description=f"the kind of log: {', '.join(f'`{name}`' for name in READERS)}")
    locale: str = Field(default="", description="use the impressions of this locale only, such as en-GB; empty: all")
    look_back_days: Annotated[int, "days"] = Field(
        default=7,
        ge=0,
        le=3650,
        description="days before `--date` whose events are used too",
    )
    splits: Splits = Splits()
    windows_hours: Windows = Windows()
    limits: Limits = Limits()
    min_items: Annotated[int, "items"] = Field(default=2, ge=1, description="usable items that a query group needs")
    max_items: Annotated[int, "items"] = Field(
        default=200,
        ge=1,
        description="items that a query group keeps, by position; at least `min_items`",
    )
    max_groups_per_query: Annotated[int | None, "groups"] = Field(
        default=None,
        ge=1,
        description="of a query with more groups, a sample of this size is used; null: no limit",
    )
    max_requests_per_hour: Annotated[int | None, "requests"] = Field(
        default=None,
        ge=1,
        description="a user with more distinct requests in a clock hour (UTC) is a bot; null: no limit",
    )
    min_distinct_users: Annotated[int, "users"] = Field(
        default=3,
        ge=1,
        description="users that a query or a categorical value needs before a manifest, vocabulary or model lists it",
    )
    dead_letter_days: Annotated[int, "days"] = Field(
        default=30,
        ge=0,
        description="age at which dead letters are deleted; 0 writes none",
    )
    shards: Annotated[int, "files"] = Field(
        default=0,
        ge=0,
        le=10_000,
        description="maximum files per view and split; 0: one per 32 MB of logs, and at least four per local worker",
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

    pieces: Annotated[int, "pieces"] = Field(
        default=8000,
        ge=64,
        le=200_000,
        description="maximum vocabulary size, special pieces included",
    )
    min_count: Annotated[int, "occurrences"] = Field(default=2, ge=1, description="rarer words are ignored")
    max_word_characters: Annotated[int, "characters"] = Field(
        default=40, ge=1, le=100, description="longer words are ignored"
    )
    max_alphabet: Annotated[int, "characters"] = Field(
        default=1000,
        ge=1,
        description="most frequent characters that are learned; words with others are ignored",
    )


def seed_of(task: Task) -> int:
    """Returns the task's `seed:`, 0 by default. Errors: InputError."""
    seed: Any = task.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"seed is {seed!r}, expected a whole number. Correct it in the task file")
    return seed
