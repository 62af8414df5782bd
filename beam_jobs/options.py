"""The task file's `dataset:` and `vocabulary:` sections."""

from typing import Any

from pydantic import Field, model_validator

from features.errors import InputError
from features.task import Section, Task


class Splits(Section):
    """Shares of the distinct queries; all of a query's groups land in one split."""

    train: float = Field(default=0.8, ge=0, le=1)
    valid: float = Field(default=0.1, ge=0, le=1)
    test: float = Field(default=0.1, ge=0, le=1)

    @model_validator(mode="after")
    def _whole(self) -> "Splits":
        if abs(self.train + self.valid + self.test - 1) > 1e-6:
            raise ValueError(f"train + valid + test is {self.train + self.valid + self.test:g}, expected 1")
        return self


class Windows(Section):
    """Hours after the impression within which an interaction still belongs to it."""

    click: float = Field(default=1.0, gt=0)
    add_to_cart: float = Field(default=24.0, gt=0)
    purchase: float = Field(default=168.0, gt=0)

    def milliseconds(self) -> dict[str, int]:
        """Interaction type -> the window's length."""
        return {kind: int(hours * 3_600_000) for kind, hours in self.model_dump().items()}


class DatasetOptions(Section):
    """`dataset:`, what decides how logs become a dataset."""

    splits: Splits = Splits()
    windows_hours: Windows = Windows()
    min_items: int = Field(default=2, ge=1)  # usable items that a group needs
    max_items: int = Field(default=200, ge=1)  # items kept in a group, the topmost ones
    min_distinct_users: int = Field(default=3, ge=1)  # who must have made a query before its text may leave the dataset
    dead_letter_days: int = Field(default=30, ge=0)  # age at which the next run deletes dead letters; 0 writes none
    shards: int = Field(default=0, ge=0, le=10_000)  # files a view and split; 0 leaves the number to the runner

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
