"""The task file's `dataset:` and `vocabulary:` sections."""

from datetime import date
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from beam_jobs.log_readers import READERS
from features.errors import InputError
from features.task import Section, Task


class Splits(Section):
    """How groups are split: by a hash of the query, by the time of the impression, or by both.

    query: the shares are of the distinct queries; all of a query's groups land in one split.
    time: train before `valid_from`, valid before `test_from`, test from there; the shares are not used.
    query_and_time: train and valid before `test_from`, test from there on, each of the queries that its share says, so
        that test is later and of unseen queries; other groups are left out.
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
    """Hours after the impression within which an interaction still belongs to it."""

    click: float = Field(default=1.0, gt=0)
    add_to_cart: float = Field(default=24.0, gt=0)
    purchase: float = Field(default=168.0, gt=0)
    refund: float = Field(default=720.0, gt=0)  # a return or a cancellation of a purchase

    def milliseconds(self) -> dict[str, int]:
        """Interaction type -> the window's length."""
        return {kind: int(hours * 3_600_000) for kind, hours in self.model_dump().items()}


class Limits(Section):
    """Shares above which the job fails, and leaves the former dataset as it was."""

    malformed: float = Field(default=0.01, ge=0, le=1)  # of the lines: those that cannot be read
    late: float = Field(default=0.5, ge=0, le=1)  # this and the next two: of the interactions
    unmatched: float = Field(default=0.5, ge=0, le=1)
    capped: float = Field(default=0.5, ge=0, le=1)


class DatasetOptions(Section):
    """`dataset:`, what decides how logs become a dataset."""

    reader: str = "native"  # the kind of the logs
    locale: str = ""  # of the impressions to use, such as en-GB; empty uses all
    look_back_days: int = Field(default=7, ge=0, le=3650)  # days before --date whose impressions are used too
    splits: Splits = Splits()
    windows_hours: Windows = Windows()
    limits: Limits = Limits()
    min_items: int = Field(default=2, ge=1)  # usable items that a group needs
    max_items: int = Field(default=200, ge=1)  # items kept in a group, the topmost ones
    max_groups_per_query: int | None = Field(default=None, ge=1)  # a sample of a query's groups; null keeps all
    max_requests_per_hour: int | None = Field(default=None, ge=1)  # of a user; who makes more is a bot; null knows none
    min_distinct_users: int = Field(default=3, ge=1)  # who must have made a query before its text may leave the dataset
    dead_letter_days: int = Field(default=30, ge=0)  # age at which the next run deletes dead letters; 0 writes none
    shards: int = Field(default=0, ge=0, le=10_000)  # files a view and split, at most; 0: one for 32 MB of logs

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
    """`vocabulary:`, how the WordPiece vocabulary is learned."""

    pieces: int = Field(default=8000, ge=64, le=200_000)  # at most, the special ones included
    min_count: int = Field(default=2, ge=1)  # occurrences below which a word is not learned from
    max_word_characters: int = Field(default=40, ge=1, le=100)  # longer words are not learned from
    max_alphabet: int = Field(default=1000, ge=1)  # the commonest characters; words with others are not learned from


def seed_of(task: Task) -> int:
    """The task's `seed:`, 0 where it has none. Errors: InputError."""
    seed: Any = task.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"seed is {seed!r}, expected a whole number. Correct it in the task file")
    return seed
