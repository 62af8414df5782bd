"""What a directory says of itself: `manifest.json`, written last, so that its presence means complete.

Reading and writing files is each room's own (Beam's filesystems, tf.io.gfile); this module holds the content.
"""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from features.errors import InputError
from features.spec import FeatureSpec, spec_from_json
from features.task import Section

FILE_NAME = "manifest.json"
FORMAT = 1  # raised when an older reader could not read a newer manifest


def stage_key(**parts: Any) -> str:
    """SHA-256 of all that decides a stage's output (inputs' keys, options); the same key means up to date."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


class Manifest(Section):
    """What every manifest says. kind: logs | dataset | vocabulary | run | model."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    kind: str
    format: int = FORMAT
    stage_key: str
    created: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    options: dict[str, Any] = {}  # the job's options, as resolved

    def to_bytes(self) -> bytes:
        return (self.model_dump_json(indent=1) + "\n").encode()


Numbers = float | tuple[float, ...]
"""A number of a scalar feature; of a vector, one of each element."""


class FeatureStatistics(Section):
    """One feature in one split. Numbers: minimum .. deviation over all values."""

    count: int  # values seen, defaults included
    missing: int = 0  # of them, filled by the default
    minimum: Numbers | None = None
    maximum: Numbers | None = None
    mean: Numbers | None = None
    deviation: Numbers | None = None  # standard deviation
    longest: int | None = None  # text: characters
    values: dict[str, int] | None = None  # categorical: value -> count, the commonest first, 10,000 at most


class SplitStatistics(Section):
    """One split of a dataset."""

    groups: int
    groups_with_label: int  # groups with a positive label (a purchase)
    items: int
    features: dict[str, FeatureStatistics]


class EventCounts(Section):
    """What became of the events of one type: read = used + duplicate + late + unmatched + malformed + capped."""

    read: int = 0
    used: int = 0
    duplicate: int = 0
    late: int = 0
    unmatched: int = 0
    malformed: int = 0
    capped: int = 0

    @property
    def reconciles(self) -> bool:
        return self.read == self.used + self.duplicate + self.late + self.unmatched + self.malformed + self.capped


class DatasetManifest(Manifest):
    """What a dataset directory says of itself (`build_elwc` writes it, the trainer reads it)."""

    kind: str = "dataset"
    features: dict[str, Any]  # FeatureSpec.to_json
    fingerprint: str
    splits: dict[str, SplitStatistics]  # train, valid, test
    events: dict[str, EventCounts]  # impression, click, ..., refund, query where logs have it, unknown if unreadable
    skipped: dict[str, int] = {}  # records that the dataset does not ask for, by what they are; none counts as read
    refused: dict[str, int] = {}  # reason -> events, items and product rows that were not used
    warnings: tuple[str, ...] = ()  # what a person should look at: suspicious features, gaps

    @property
    def spec(self) -> FeatureSpec:
        return spec_from_json(self.features)


class VocabularyManifest(Manifest):
    """What a vocabulary directory says of itself."""

    kind: str = "vocabulary"
    fingerprint: str  # of the dataset's spec
    pieces: int
    sha256: str  # of vocabulary.txt


Precision = Literal["float", "int8"]
"""Of the weights in a LiteRT file."""


class Agreement(Section):
    """How a precision's scores of the validation split's positive groups agree with the SavedModel's."""

    ndcg_change: float  # of NDCG at the first cutoff, as a share of the SavedModel's
    kendall_tau: float  # the mean over groups, 1 for the same order
    largest_difference: float  # of two logits


class LiteRtGraphs(Section):
    """What an exported model says of its LiteRT files; `features.litert` runs them."""

    pairs: int  # items in one call
    context_lengths: tuple[int, ...]  # tokens that a query's side may be padded to, ascending
    item_lengths: tuple[int, ...]
    split: bool  # whether sides have states of their own
    features: dict[str, Literal["context", "item"]]  # further inputs of `score`, as the signature `prepare` makes them
    precisions: dict[Precision, Agreement]  # those that were kept


def litert_file(precision: Precision) -> str:
    """A precision's LiteRT file, in the directory of a version."""
    return f"assets.extra/litert/{precision}.tflite"


class ModelManifest(Manifest):
    """What an exported model says of itself: `assets.extra/manifest.json` beside the SavedModel."""

    kind: str = "model"
    name: str
    features: dict[str, Any]  # FeatureSpec.to_json of all features: the gateway tells privileged from unknown
    fingerprint: str
    files: dict[str, str]  # path inside the version's directory -> SHA-256
    tokeniser: str  # SHA-256 of the vocabulary; empty where the spec has no text
    limits: dict[str, int]  # max_context_tokens, max_item_tokens
    ranges: dict[str, tuple[Numbers, Numbers]]  # numeric regular features: training's minimum and maximum
    score_histogram: dict[str, Any]  # edges and counts of sigma(logit) on the validation split
    metrics: dict[str, Any]  # with intervals, as metrics.json has them
    parents: dict[str, str]  # dataset, vocabulary, teachers: their stage keys
    warm_up: tuple[dict[str, Any], ...] = ()  # requests in /rank's shape, to warm and check a loaded model
    litert: LiteRtGraphs | None = None  # None for a model without LiteRT files

    @property
    def spec(self) -> FeatureSpec:
        return spec_from_json(self.features)


ManifestT = TypeVar("ManifestT", bound=Manifest)


def parse_manifest(content: bytes, where: str, model: type[ManifestT]) -> ManifestT:
    """The manifest in `content`; `where` names it in errors.

    Errors: InputError when it is none, of another kind, or of a newer format.
    """
    expected = model.model_fields["kind"].default
    remedy = f"give a complete {expected} directory, or make it again"
    try:
        manifest = model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "content"
        raise InputError(f"{where} is no {expected} manifest: {field}: {first['msg']}; {remedy}") from None
    if manifest.kind != expected or manifest.format != FORMAT:
        found = f"kind {manifest.kind!r}, format {manifest.format}"
        raise InputError(f"{where} has {found}, expected kind {expected!r}, format {FORMAT}; {remedy}")
    return manifest
