"""Schemas of `manifest.json`, which is written last: a directory with a manifest is complete.

Each room does its own file access (Beam's filesystems, tf.io.gfile); this module has the content only.
"""

import fnmatch
import hashlib
import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from features.errors import InputError
from features.spec import FeatureSpec, spec_from_json
from features.task import Section

FILE_NAME = "manifest.json"
FORMAT = 1  # increment when old readers cannot read new manifests


def stage_key(**parts: Any) -> str:
    """Returns the SHA-256 of everything that determines a stage's output; an equal key means up to date."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


class Manifest(Section):
    """Fields of every manifest. kind: logs | dataset | vocabulary | run | model."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    kind: str
    format: int = FORMAT
    stage_key: str
    created: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    options: dict[str, Any] = {}  # the job's options, as resolved

    def to_bytes(self) -> bytes:
        return (self.model_dump_json(indent=1) + "\n").encode()


def _check_relative(path: str) -> str:
    """Returns `path`. Errors: ValueError when it leaves its directory."""
    if "\\" in path or "://" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is no path below the manifest's directory")
    return path


RelativePath = Annotated[str, AfterValidator(_check_relative)]
"""A relative path with slashes that stays below its directory."""


class StoredFile(Section):
    """Size and checksum of a published file."""

    bytes: int
    sha256: str


class PublishedManifest(Manifest):
    """Manifest of a directory published by `features.publication`.

    The file 'train/x' is stored at '<run>/train/x' below the manifest's directory.
    """

    run: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")] | None = None  # None: beside the manifest
    files: dict[RelativePath, StoredFile] = {}

    def stored_path(self, name: str) -> str:
        """Returns the path of the file `name`, relative to the manifest's directory."""
        return f"{self.run}/{name}" if self.run else name

    def file_path(self, directory: str, name: str) -> str:
        """Returns the full path of the file `name`. Errors: InputError when the manifest does not list it."""
        if name not in self.files:
            raise InputError(f"{directory}/{FILE_NAME} lists no file {name}, expected one: make {directory} again")
        return f"{directory.rstrip('/')}/{self.stored_path(name)}"

    def matching_files(self, pattern: str) -> list[str]:
        """Returns the names that match a glob, sorted."""
        return sorted(fnmatch.filter(self.files, pattern))


def published_paths(content: bytes, pattern: str) -> list[str] | None:
    """Returns the stored paths of a manifest's files whose names match a glob, sorted by name.

    Returns None when `content` is not a manifest of a published directory of any kind.
    """
    try:
        found = json.loads(content)
        run, files = found["run"], sorted(found["files"])
        inside = [
            _check_relative(f"{run}/{name}" if run else name) for name in files if fnmatch.fnmatchcase(name, pattern)
        ]
    except (ValueError, KeyError, TypeError):
        return None
    return inside


Numbers = float | tuple[float, ...]
"""One number for a scalar feature; one per element for a vector."""


class FeatureStatistics(Section):
    """Statistics of one feature in one split. Numeric features have minimum to deviation."""

    count: int  # values seen, defaults included
    missing: int = 0  # of these, filled by the default
    minimum: Numbers | None = None
    maximum: Numbers | None = None
    mean: Numbers | None = None
    deviation: Numbers | None = None  # standard deviation
    longest: int | None = None  # text: characters
    values: dict[str, int] | None = (
        None  # categorical: value -> exact count; the 10,000 most frequent with enough users
    )


class SplitStatistics(Section):
    """One split of a dataset."""

    groups: int
    groups_with_label: int  # groups with a positive label (a purchase)
    items: int
    features: dict[str, FeatureStatistics]


class EventCounts(Section):
    """Events of one type by fate: read = used + duplicate + late + unmatched + malformed + capped."""

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


class DatasetManifest(PublishedManifest):
    """Manifest of a dataset directory: `build_elwc` writes it, the trainer reads it."""

    kind: str = "dataset"
    task: str = ""  # the name of the task that it was built for
    features: dict[str, Any]  # FeatureSpec.to_json
    fingerprint: str
    splits: dict[str, SplitStatistics]  # train, valid, test
    events: dict[str, EventCounts]  # impression, click, ..., refund, query where logs have it, unknown if unreadable
    skipped: dict[str, int] = {}  # valid records that are not used, by type; they do not count as read
    refused: dict[str, int] = {}  # reason -> count of refused events, items and product rows
    ignored: dict[str, int] = {}  # unknown field -> events that have it
    warnings: tuple[str, ...] = ()  # for people: suspicious features, gaps

    @property
    def spec(self) -> FeatureSpec:
        return spec_from_json(self.features)


class VocabularyManifest(PublishedManifest):
    """Manifest of a vocabulary directory."""

    kind: str = "vocabulary"
    task: str = ""  # the name of the task that it was built for
    fingerprint: str  # of the dataset's spec
    pieces: int
    sha256: str  # of vocabulary.txt


Precision = Literal["float", "int8"]
"""Weight type of a LiteRT file."""


class Agreement(Section):
    """How a precision's scores of the validation split's positive groups agree with the SavedModel's."""

    ndcg_change: float  # of NDCG at the first cutoff, as a share of the SavedModel's
    kendall_tau: float  # the mean over groups, 1 for the same order
    largest_difference: float  # of two logits


class LiteRtGraphs(Section):
    """An exported model's LiteRT files; `inference.litert_engine` runs them."""

    pairs: int  # items in one call
    context_lengths: tuple[int, ...]  # tokens that a query's side may be padded to, ascending
    item_lengths: tuple[int, ...]
    split: bool  # whether sides have states of their own
    item_start: int = 0  # rows of an item's states before its first token: 1 where they begin with [CLS]
    features: dict[str, Literal["context", "item"]]  # further inputs of `score`, as the signature `prepare` makes them
    precisions: dict[Precision, Agreement]  # those that were kept


def litert_file(precision: Precision) -> str:
    """A precision's LiteRT file, in the directory of a version."""
    return f"assets.extra/litert/{precision}.tflite"


class ModelManifest(Manifest):
    """Manifest of an exported model: `assets.extra/manifest.json` beside the SavedModel."""

    kind: str = "model"
    name: str
    features: dict[str, Any]  # FeatureSpec.to_json of all features: the gateway tells privileged from unknown
    fingerprint: str
    files: dict[RelativePath, str]  # path inside the version's directory -> SHA-256
    tokeniser: str  # SHA-256 of the vocabulary; empty where the spec has no text
    limits: dict[str, int]  # max_context_tokens, max_item_tokens
    ranges: dict[str, tuple[Numbers, Numbers]]  # numeric regular features: training's minimum and maximum
    score_histogram: dict[str, Any]  # edges and counts of sigma(logit) on the validation split
    metrics: dict[str, Any]  # with intervals, as metrics.json has them
    parents: dict[str, str]  # dataset, vocabulary, teachers: their stage keys
    warm_up: tuple[dict[str, Any], ...] = ()  # requests in /rank's shape, to warm and check a loaded model
    litert: LiteRtGraphs | None = None  # None for a model without LiteRT files
    no_litert: dict[Precision, str] = {}  # requested precisions that are missing -> reason

    @property
    def spec(self) -> FeatureSpec:
        return spec_from_json(self.features)


ManifestT = TypeVar("ManifestT", bound=Manifest)


def parse_manifest(content: bytes, where: str, model: type[ManifestT]) -> ManifestT:
    """Parses a manifest; `where` names it in errors.

    Errors: InputError when `content` is not a manifest, or has another kind or format.
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
