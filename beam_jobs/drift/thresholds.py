"""The thresholds file of `compare_datasets`; all keys are optional."""

from collections.abc import Collection

from pydantic import Field

from features.errors import InputError
from features.task import Section, load_yaml, parse


class Thresholds(Section):
    """A difference is drift above its threshold and its chance bound. null: shown, never judged."""

    divergence: float | None = Field(default=0.02, ge=0)  # Jensen-Shannon, bits: of numbers, of lengths, of values
    share_change: float | None = Field(default=0.05, ge=0)  # the largest of any one value: categories and texts
    rate_change: float | None = Field(default=0.2, ge=0)  # of labels and bools, as a share of the rate
    missing_change: float | None = Field(default=0.02, ge=0)  # of the share of values that were filled by the default
    unseen: float | None = Field(default=0.1, ge=0)  # share of B's values new to A, beyond what another A would have


class ComparisonOptions(Thresholds):
    """The thresholds file."""

    false_alarms: float = Field(default=0.01, gt=0, lt=1)  # probability of any drift between two datasets of one source
    features: dict[str, Thresholds] = {}  # overrides for single features; `items` is the group size

    def limit(self, feature: str, kind: str) -> float | None:
        """kind: a field of Thresholds."""
        own = self.features[feature].model_dump(exclude_unset=True) if feature in self.features else {}
        found: float | None = {**self.model_dump(), **own}[kind]
        return found


def load_options(path: str | None, features: Collection[str]) -> ComparisonOptions:
    """The options of a file, or the defaults. features: names that may have thresholds. Errors: InputError."""
    keys = ("extends", *ComparisonOptions.model_fields)
    given = load_yaml(path, "thresholds file", keys) if path else {}
    options = parse(given, "thresholds", ComparisonOptions, "the thresholds file")
    for name in options.features:
        if name not in features:
            raise InputError(f"thresholds.features.{name}: not compared, expected one of {', '.join(features)}")
    return options
