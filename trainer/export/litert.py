"""Converts the student to LiteRT, float and int8, as graphs of fixed shapes; a file must agree with the student."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from ai_edge_quantizer import qtyping
from ai_edge_quantizer.quantizer import Quantizer

from features.manifest import Agreement, LiteRtGraphs, Precision, litert_file
from inference.kendall_tau import kendall_tau
from inference.litert_engine import CONTEXT_STATES, CONTEXT_TOKENS, ITEM_STATES, ITEM_TOKENS, Engine
from trainer.config import ExportConfig
from trainer.data.batches import Batches
from trainer.data.preprocessing import Tensors
from trainer.evaluation.metrics import ndcg
from trainer.models.ranker import Ranker
from trainer.models.transformer import SEPARATOR_ID
from trainer.storage.stages import write_file
from trainer.training.fit_ranker import infer_batches

_PAIRS_PER_CALL = 10  # items a call: more are hardly faster per pair, and leave more padding in the last call
# token lengths that have a graph of their own: padding costs as much time as tokens
_PADDED_LENGTHS = (8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256, 384, 512, 1024, 2048)
_SHORT_CONTEXT_TOKENS = 8  # most queries are this short; longer ones are padded to the maximum
_MAX_SHARE_OF_LONGEST = 0.9  # lengths above this share of the longest get no graph
_BLOCK_PREFIX = "block_"  # prefix of the op names of the transformer's layers
_MAX_REASON_CHARACTERS = 200  # of a converter's message
_MAX_FLOAT_DIFFERENCE = 1e-3  # largest difference between logits of the same arithmetic in another order

Signatures = dict[str, Any]


class FixedShapeGraphs(tf.Module):
    """The student as concrete functions of the shapes in `graphs`."""

    def __init__(self, model: Ranker, graphs: LiteRtGraphs, example: Tensors) -> None:
        """example: a batch of the student's inputs, which gives the shapes of the non-text features."""
        super().__init__(name="shaped")
        self._graphs = graphs
        self._variables = model.variables  # referenced, so that they are saved
        # functions, not Keras objects: Keras would save graphs of its own
        encoder: Any = model.encoder  # not None: see `_unsupported_reason`
        self._width = encoder.width
        self._score = lambda *inputs, **named: self._scored(model, *inputs, **named)
        self._context = lambda context_tokens: {"states": encoder.context_states(context_tokens)}
        self._items = lambda item_tokens: {"states": encoder.item_states(item_tokens)}
        self._others = {
            name: tf.TensorSpec(
                [1, *example[name].shape[1:]] if level == "context" else [graphs.pairs, *example[name].shape[2:]],
                example[name].dtype,
                name=name,
            )
            for name, level in graphs.features.items()
        }

    def signatures(self) -> Signatures:
        """Concrete functions by the names that `inference.litert_engine` calls."""
        graphs, width = self._graphs, self._width
        found: Signatures = {}
        contexts = {c: tf.TensorSpec([1, c], tf.int32, name=CONTEXT_TOKENS) for c in graphs.context_lengths}
        items = {t: tf.TensorSpec([graphs.pairs, t], tf.int32, name=ITEM_TOKENS) for t in graphs.item_lengths}
        if graphs.split:
            found |= {f"context_{c}": _graph(self._context, tokens) for c, tokens in contexts.items()}
            found |= {f"items_{t}": _graph(self._items, tokens) for t, tokens in items.items()}
        for c, t in itertools.product(contexts, items):
            states = {
                CONTEXT_STATES: tf.TensorSpec([1, 1 + c, width], name=CONTEXT_STATES),
                ITEM_STATES: tf.TensorSpec([graphs.pairs, graphs.item_start + t, width], name=ITEM_STATES),
            }
            inputs = self._others | (states if graphs.split else {})
            found[f"score_{c}_{t}"] = _graph(self._score, contexts[c], items[t], **inputs)
        return found

    def _scored(self, model: Ranker, context_tokens: tf.Tensor, item_tokens: tf.Tensor, **others: tf.Tensor) -> Tensors:
        split = self._graphs.split
        states = (others.pop(CONTEXT_STATES), others.pop(ITEM_STATES)) if split else None
        regular = {CONTEXT_TOKENS: context_tokens, ITEM_TOKENS: tf.expand_dims(item_tokens, 0)}
        for name, level in self._graphs.features.items():
            regular[name] = others[name] if level == "context" else tf.expand_dims(others[name], 0)
        mask = tf.ones([1, self._graphs.pairs], tf.bool)
        return {"score": tf.squeeze(model(regular, {}, mask, training=False, states=states), axis=0)}


def _graph(function: Any, *inputs: tf.TensorSpec, **named: tf.TensorSpec) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*inputs, **named)


class LiteRtExport(NamedTuple):
    """Result for the precisions in `export.litert`. graphs: None if no file was kept."""

    graphs: LiteRtGraphs | None
    left_out: dict[Precision, str]  # precision -> reason


def write_litert(
    model: Ranker, config: ExportConfig, example: Tensors, validation: Batches, cutoff: int, directory: str
) -> LiteRtExport:
    """Writes a file for each precision of `config.litert` that agrees with the student on the validation groups.

    A precision whose conversion fails is left out, like one that does not agree.
    example: a batch of the student's inputs. cutoff: the k of the NDCG@k that must agree. directory: the version's.
    """
    requested = config.litert
    if requested and (reason := _unsupported_reason(model)):
        print(f"  no LiteRT files: {reason}", flush=True)
        return LiteRtExport(None, dict.fromkeys(requested, reason))
    kept: dict[Precision, Agreement] = {}
    left_out: dict[Precision, str] = {}
    if not requested:
        return LiteRtExport(None, left_out)
    graphs = _graphs_of(model)
    for precision in requested:
        found = _convert_or_reason(model, graphs, precision, example, validation, cutoff)
        if isinstance(found, str):
            left_out[precision] = found
            print(f"  LiteRT {precision}: left out, {found}", flush=True)
            continue
        content, agreement = found
        rejection = rejection_reason(precision, agreement, config)
        if rejection is None:
            kept[precision] = agreement
            write_file(f"{directory}/{litert_file(precision)}", content)
        else:
            left_out[precision] = rejection
        changes = f"NDCG {agreement.ndcg_change:+.2%}, Kendall tau {agreement.kendall_tau:.4f}"
        print(f"  LiteRT {precision}: {changes}, {f'left out, {rejection}' if rejection else 'kept'}", flush=True)
    return LiteRtExport(graphs.model_copy(update={"precisions": kept}) if kept else None, left_out)


def _graphs_of(model: Ranker) -> LiteRtGraphs:
    """The input shapes for which a student is converted."""
    encoder: Any = model.encoder
    config = encoder.config
    return LiteRtGraphs(
        pairs=_PAIRS_PER_CALL,
        context_lengths=_lengths(config.max_context_tokens + 1, most=_SHORT_CONTEXT_TOKENS),
        item_lengths=_lengths(config.max_item_tokens + 1),
        split=config.split_layers > 0,
        item_start=encoder.item_start,
        features={f.name: f.level for f in model.others},
        precisions={},
    )


def _convert_or_reason(
    model: Ranker, graphs: LiteRtGraphs, precision: Precision, example: Tensors, validation: Batches, cutoff: int
) -> tuple[bytes, Agreement] | str:
    """The student's graphs as one LiteRT file with its agreement, or the reason why the conversion failed.

    Catches every exception: the converter, the quantizer and LiteRT raise many types, and the files are optional.
    """
    try:
        content = _convert(model, graphs, example, precision)
        return content, _agreement(content, graphs, model, validation, cutoff)
    except Exception as error:
        return f"its conversion failed: {type(error).__name__}: {_first_line(str(error))}"


def _first_line(text: str) -> str:
    """The first non-empty line, truncated."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:_MAX_REASON_CHARACTERS] if lines else "no reason given"


def _unsupported_reason(model: Ranker) -> str | None:
    """Why LiteRT cannot serve this student, or None."""
    if model.encoder is None:
        return "the student has no transformer"
    if model.interaction is not None:
        return "its items are scored together (student.interaction), not a few at a time"
    if model.compute_dtype != "float32":
        return f"its arithmetic is {model.compute_dtype}"
    return None


def _lengths(longest: int, most: int = _PADDED_LENGTHS[-1]) -> tuple[int, ...]:
    """The _PADDED_LENGTHS up to `most` that are well below `longest`, then `longest`."""
    return (
        *(length for length in _PADDED_LENGTHS if length < _MAX_SHARE_OF_LONGEST * longest and length <= most),
        longest,
    )


def _convert(model: Ranker, graphs: LiteRtGraphs, example: Tensors, precision: Precision) -> bytes:
    """The student's graphs as one LiteRT file."""
    encoder: Any = model.encoder
    shaped = FixedShapeGraphs(model, graphs, example)
    encoder.batched_heads = precision == "int8"
    try:
        signatures = shaped.signatures()
    finally:
        encoder.batched_heads = False
    with tempfile.TemporaryDirectory() as saved, _stderr_suppressed():
        tf.saved_model.save(shaped, saved, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=list(signatures))
        converter.exclude_conversion_metadata = True  # writing it takes most of the time
        content = bytes(converter.convert())
        return content if precision == "float" else _quantize_to_int8(content)


def _quantize_to_int8(content: bytes) -> bytes:
    """Quantises the transformer layers' weights to 8 bits, per column; their inputs are quantised per token.

    Other weights stay float: they take little time and have a wide range. Quantising them, as TensorFlow's converter
    does, would change the order of items far more.
    """
    quantizer = Quantizer(content)
    quantizer.add_dynamic_config(_BLOCK_PREFIX, qtyping.TFLOperationName.FULLY_CONNECTED, num_bits=8)
    return bytes(quantizer.quantize(enable_progress_bar=False, enable_progress_report=False).quantized_model)


@contextmanager
def _stderr_suppressed() -> Iterator[None]:
    """Discards the debug output that the converter's C++ writes to stderr; its errors are exceptions."""
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _agreement(content: bytes, graphs: LiteRtGraphs, model: Ranker, batches: Batches, cutoff: int) -> Agreement:
    """Compares a LiteRT file's scores with the student's on labelled groups."""
    engine, found, taus, differences = Engine(content, graphs), [], [], []
    for batch, logits in infer_batches(model, batches):
        labels, mask = batch["label"].numpy().astype(np.float64), batch["mask"].numpy()
        regular = {name: values.numpy() for name, values in batch["regular"].items()}
        scores = np.zeros_like(logits)
        for group, real in enumerate(mask):
            scores[group, real] = _scored(engine, graphs, {name: v[group] for name, v in regular.items()}, real)
        found.append(np.stack([ndcg(labels, s.astype(np.float64), mask, cutoff) for s in (logits, scores)]))
        taus += [kendall_tau(logits[group][real], scores[group][real]) for group, real in enumerate(mask)]
        differences.append(np.abs(logits - scores)[mask].max())
    before, after = np.nanmean(np.concatenate(found, axis=1), axis=1)
    return Agreement(
        ndcg_change=float((after - before) / before) if before else 0.0,
        kendall_tau=float(np.mean(taus)),
        largest_difference=float(max(differences)),
    )


def _scored(engine: Engine, graphs: LiteRtGraphs, regular: dict[str, Any], real: Any) -> Any:
    """An engine's scores of a group's real items. regular: the student's inputs for the group."""
    context = regular.get(CONTEXT_TOKENS, np.array([SEPARATOR_ID], np.int32))
    others = {n: regular[n] if level == "context" else regular[n][real] for n, level in graphs.features.items()}
    return engine.score(context[context > 0], [tokens[tokens > 0] for tokens in regular[ITEM_TOKENS][real]], others)


def rejection_reason(precision: Precision, agreement: Agreement, gate: ExportConfig) -> str | None:
    """Why a precision fails the gate, or None if it passes."""
    if not abs(agreement.ndcg_change) <= gate.largest_ndcg_change:
        return f"NDCG changes by {agreement.ndcg_change:+.2%}, more than {gate.largest_ndcg_change:.1%}"
    if not agreement.kendall_tau >= gate.least_kendall_tau:
        return f"Kendall tau is {agreement.kendall_tau:.4f}, below {gate.least_kendall_tau}"
    if precision == "float" and not agreement.largest_difference <= _MAX_FLOAT_DIFFERENCE:
        return f"a logit differs by {agreement.largest_difference:.2g}, more than {_MAX_FLOAT_DIFFERENCE:g}"
    return None
