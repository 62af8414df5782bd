"""Small SavedModels that follow the contract of an exported model, with scores that a reader can redo."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_text as tf_text

from features.manifest import ModelManifest
from features.spec import FeatureSpec, spec_from_json
from serving.backends.base import Backend
from serving.backends.registry import create_backend
from serving.exports.graph.check import DTYPES
from serving.exports.store import verified_copy
from serving.settings import Settings
from tests.features.specs import DEMO

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "blue",
    "red",
    "sofa",
    "table",
    "velvet",
    "oak",
    "navy",
    "slow",
    "broken",
    "crash",
]
LIMITS = {"max_context_tokens": 4, "max_item_tokens": 6}

SHOP = spec_from_json(DEMO)

RICH = spec_from_json(
    {
        "query": {"type": "text", "level": "context"},
        "hour": {"type": "int", "level": "context", "default": 12},
        "title": {"type": "text", "level": "item"},
        "price": {"type": "float", "level": "item", "default": 0.0},
        "brand": {"type": "categorical", "level": "item", "default": ""},
        "in_stock": {"type": "bool", "level": "item", "default": True},
        "colour": {"type": "float", "level": "item", "length": 3, "default": [0.0, 0.0, 0.0]},
        "click": {"type": "bool", "level": "item", "role": "privileged"},
        "purchase": {"type": "bool", "level": "item", "role": "label"},
    }
)

NUMBERS_ONLY = spec_from_json(
    {
        "vector": {"type": "float", "level": "item", "length": 2},
        "click": {"type": "bool", "level": "item", "role": "privileged"},
        "relevance": {"type": "int", "level": "item", "role": "label"},
    }
)


class Overlap(tf.Module):
    """Logit = share of the query's tokens that the title holds, doubled, minus 1, plus price / 100.

    So a title with all of them has logit 1, with half of them 0, with none -1. A title with the token `broken` has
    logit NaN; one with the token `slow` takes a second or two; with `crash` the whole call fails. Without text: the
    sum of the vector. A `weight` of -2 instead of 2 turns the order round.
    rounds: of the multiplications that make it slow.
    """

    def __init__(
        self, spec: FeatureSpec, broken: str = "broken", slow: str = "slow", crash: str = "crash", rounds: int = 400
    ) -> None:
        super().__init__()
        self.spec, self.rounds = spec, rounds
        self.broken, self.slow, self.crash = (PIECES.index(token) for token in (broken, slow, crash))
        self.weight, self.bias = tf.Variable(2.0), tf.Variable(-1.0)
        self.pieces = tokeniser_of(PIECES)
        names = tf.lookup.KeyValueTensorInitializer(tf.constant(["acme"]), tf.constant([0.25]))
        self.brands = tf.lookup.StaticHashTable(names, default_value=0.0)

    def logits(self, inputs: dict[str, tf.Tensor], item_count: tf.Tensor) -> tf.Tensor:
        if "vector" in inputs:
            scores = tf.reduce_sum(inputs["vector"], axis=-1)
        else:
            scores = self.overlap(inputs["query"], inputs["title"])
        if "price" in inputs:
            price = tf.clip_by_value(inputs["price"], 0.0, 100.0)
            scores += price / 100.0 + self.brands.lookup(inputs["brand"])
        return tf.where(tf.sequence_mask(item_count, tf.shape(scores)[1]), scores, 0.0)

    def overlap(self, query: tf.Tensor, title: tf.Tensor) -> tf.Tensor:
        wanted = self.tokens(query).to_tensor(-1)[:, tf.newaxis, :, tf.newaxis]  # [groups, 1, query tokens, 1]
        shape = tf.shape(title)
        flat = self.tokens(tf.reshape(title, [-1])).to_tensor(-2)
        held = tf.reshape(flat, [shape[0], shape[1], 1, tf.shape(flat)[1]])
        found = tf.reduce_any(tf.equal(wanted, held), axis=3)
        asked = tf.cast(tf.not_equal(wanted[..., 0], -1), tf.float32)
        share = tf.reduce_sum(tf.cast(found, tf.float32) * asked, axis=2) / tf.maximum(
            tf.reduce_sum(asked, axis=2), 1.0
        )
        broken = tf.reduce_any(tf.equal(held[:, :, 0], self.broken), axis=2)
        slow = tf.reduce_any(tf.equal(held, self.slow))
        crash = tf.reduce_any(tf.equal(held, self.crash))
        tf.debugging.Assert(tf.logical_not(crash), [title])
        return tf.where(broken, float("nan"), self.weight * share + self.bias + _waste(slow, self.rounds))

    def tokens(self, text: tf.Tensor) -> tf.RaggedTensor:
        return tokens_of(self.pieces, text)

    def tokenize(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        tokens = self.tokens(text)
        return {"tokens": tokens.to_tensor(), "length": tf.cast(tokens.row_lengths(), tf.int32)}


def tokeniser_of(pieces: list[str]) -> tf_text.FastBertTokenizer:
    return tf_text.FastBertTokenizer(vocab=pieces, token_out_type=tf.int32, lower_case_nfd_strip_accents=True)


def tokens_of(tokeniser: tf_text.FastBertTokenizer, text: tf.Tensor) -> tf.RaggedTensor:
    return tokeniser.tokenize(tf_text.normalize_utf8(text, "NFKC"))


def _waste(slow: tf.Tensor, most: int) -> tf.Tensor:
    """0.0, after many multiplications where `slow`."""
    matrix = tf.ones([512, 512]) * tf.cast(slow, tf.float32) / 512.0
    rounds = tf.where(slow, most, 0)
    _, product = tf.while_loop(lambda i, _: i < rounds, lambda i, m: (i + 1, tf.matmul(m, matrix)), (0, matrix))
    return 0.0 * tf.reduce_sum(product)


def signature_specs(spec: FeatureSpec) -> dict[str, tf.TensorSpec]:
    specs = {"item_count": tf.TensorSpec([None], tf.int32, name="item_count")}
    for feature in spec.regular:
        shape = [None] * (1 + (feature.level == "item")) + ([feature.length] if feature.length > 1 else [])
        specs[feature.name] = tf.TensorSpec(shape, DTYPES[feature.type], name=feature.name)
    return specs


def signatures_of(module: Overlap, surplus: dict[str, tf.TensorSpec] | None = None) -> dict[str, Any]:
    """surplus: inputs that the contract does not have, for tests that smuggle."""

    def rank(item_count: tf.Tensor, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"score": module.logits(inputs, item_count)}

    specs = signature_specs(module.spec) | (surplus or {})
    signatures = {"rank": tf.function(rank).get_concrete_function(**specs)}
    if any(feature.is_text for feature in module.spec.regular):
        text = tf.TensorSpec([None], tf.string, name="text")
        signatures["tokenize"] = tf.function(module.tokenize).get_concrete_function(text=text)
    return signatures


def export(
    folder: Path,
    spec: FeatureSpec = SHOP,
    version: int = 1,
    module: tf.Module | None = None,
    signatures: dict[str, Any] | None = None,
    **manifest: Any,
) -> Path:
    """Writes `folder/<version>/` as the trainer does, manifest last. Returns the version's directory."""
    path = folder / str(version)
    module = module or Overlap(spec)
    tf.saved_model.save(module, str(path), signatures or signatures_of(module))
    write_manifest(path, spec, **manifest)
    return path


def write_manifest(path: Path, spec: FeatureSpec, **changes: Any) -> None:
    files = {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "manifest.json"
    }
    said: dict[str, Any] = {
        "stage_key": "test",
        "name": "overlap",
        "features": spec.to_json(),
        "fingerprint": spec.fingerprint,
        "files": files,
        "tokeniser": "",
        "limits": LIMITS,
        "ranges": {},
        "score_histogram": {},
        "metrics": {},
        "parents": {},
        "warm_up": (),
    }
    manifest = ModelManifest(**(said | changes))
    (path / "assets.extra").mkdir(exist_ok=True)
    (path / "assets.extra" / "manifest.json").write_bytes(manifest.to_bytes())


def verify(folder: Path, version: int = 1) -> ModelManifest:
    """Verifies a version as a gateway does, loads nothing, and returns its manifest."""
    with verified_copy(str(folder), version) as model:
        return model.manifest


def load_backend(folder: Path, version: int, settings: Settings) -> Backend:
    with verified_copy(str(folder), version) as model:
        return create_backend(model, settings)


WARM_UP = (
    {
        "query": "blue sofa",
        "items": [
            {"id": "p1", "title": "Velvet sofa, navy"},
            {"id": "p2", "title": "Blue sofa bed <script>alert(1)</script> & more"},
            {"id": "p3", "title": "Oak table"},
        ],
    },
    {"query": "oak table", "items": [{"id": "p1", "title": "Oak table, navy"}, {"id": "p2", "title": "Red table"}]},
)


def body_of(**members: Any) -> bytes:
    return json.dumps(members).encode()
