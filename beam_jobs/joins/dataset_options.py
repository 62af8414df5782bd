"""The task file's `dataset:` and `vocabulary:` sections."""

from datetime import date
from typing import Any, Literal

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

    by: Literal["query", "time", "query_and_time"] = "query"
    train: float = Field(default=0.8, ge=0, le=1)
    valid: float = Field(default=0.1, ge=0, le=1)
    test: float = Field(default=0.1, ge=0, le=1)
    valid_from: date | None = None  # 00:00 UTC of the day
    test_from: date | None = None  # 00:00 UTC of the day

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

    click: float = Field(default=1.0, gt=0)
    add_to_cart: float = Field(default=24.0, gt=0)
    purchase: float = Field(default=168.0, gt=0)
    refund: float = Field(default=720.0, gt=0)  # a return or a cancellation of a purchase

    def milliseconds(self) -> dict[str, int]:
        """Returns interaction type -> window in milliseconds."""
        return {kind: int(hours * 3_600_000) for kind, hours in self.model_dump().items()}


class Limits(Section):
    """Shares of lost events above which the job fails; the former dataset stays."""

    malformed: float = Field(default=0.01, ge=0, le=1)  # unreadable lines, of all lines
    late: float = Field(default=0.5, ge=0, le=1)  # this and the next two: of all interactions
    unmatched: float = Field(default=0.5, ge=0, le=1)
    capped: float = Field(default=0.5, ge=0, le=1)


class DatasetOptions(Section):
    """`dataset:`, the options of building a dataset."""

    reader: str = "native"  # the kind of the logs
    locale: str = ""  # use only impressions of this locale, such as en-GB; empty uses all
    look_back_days: int = Field(default=7, ge=0, le=3650)  # days before --date whose impressions are used too
    splits: Splits = Splits()
    windows_hours: Windows = Windows()
    limits: Limits = Limits()
    min_items: int = Field(default=2, ge=1)  # usable items that a group needs
    max_items: int = Field(default=200, ge=1)  # items kept in a group, the topmost ones
    max_groups_per_query: int | None = Field(default=None, ge=1)  # a sample of a query's groups; null keeps all
    max_requests_per_hour: int | None = Field(default=None, ge=1)  # users with more are bots; null: no limit
    # minimum users per query or categorical value listed in a manifest, vocabulary or model
    min_distinct_users: int = Field(default=3, ge=1)
    dead_letter_days: int = Field(default=30, ge=0)  # dead letters are deleted at this age; 0 writes none
    shards: int = Field(default=0, ge=0, le=10_000)  # maximum files per view and split; 0: one per 32 MB of logs

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

    pieces: int = Field(default=8000, ge=64, le=200_000)  # maximum vocabulary size, special pieces included
    min_count: int = Field(default=2, ge=1)  # rarer words are ignored
    max_word_characters: int = Field(default=40, ge=1, le=100)  # longer words are ignored
    max_alphabet: int = Field(default=1000, ge=1)  # most frequent characters; words with others are ignored


def seed_of(task: Task) -> int:
    """Returns the task's `seed:`, 0 by default. Errors: InputError."""
    seed: Any = task.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"seed is {seed!r}, expected a whole number. Correct it in the task file")
    return seed
