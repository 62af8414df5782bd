"""The student for LiteRT, float and int8: graphs of fixed shapes, and the gate that each precision must pass."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from ai_edge_quantizer import qtyping
from ai_edge_quantizer.quantizer import Quantizer

from features.agreement import kendall_tau
from features.litert import CONTEXT_STATES, CONTEXT_TOKENS, ITEM_STATES, ITEM_TOKENS, Engine
from features.manifest import Agreement, LiteRtGraphs, Precision, litert_file
from trainer.config import ExportConfig
from trainer.data import Batches
from trainer.encoders import SEPARATOR_ID
from trainer.metrics import ndcg
from trainer.preprocessing import Tensors
from trainer.ranker import Ranker
from trainer.run import Run
from trainer.stages import write_file
from trainer.training import inferred

PAIRS = 10  # items a call: more are hardly faster by the pair, and leave more of a last call empty
# tokens that a side may be padded to: what is padded costs as much as what is there, each length a graph of its own
LENGTHS = (8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256, 384, 512, 1024, 2048)
SHORT_CONTEXT = 8  # tokens of most queries; longer ones are padded to the longest
WELL_BELOW = 0.9  # a length, as a share of the longest, that is worth a graph
LAYERS = "block_"  # names what the transformer's layers compute
FLOAT_DIFFERENCE = 1e-3  # of two logits, where arithmetic is the same but for its order

Signatures = dict[str, Any]


class Shaped(tf.Module):
    """The student as concrete functions of the shapes that `graphs` says."""

    def __init__(self, model: Ranker, graphs: LiteRtGraphs, example: Tensors) -> None:
        """example: the student's inputs for some batch, of which the further features' shapes are taken."""
        super().__init__(name="shaped")
        self._graphs = graphs
        self._variables = model.variables  # held, so that they are saved
        # functions, not Keras's objects: those would be saved with graphs of their own
        encoder: Any = model.encoder  # there is one, or LiteRT is not for this student
        self._width = encoder.config.width
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
        """By the names that `features.litert` calls."""
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
                ITEM_STATES: tf.TensorSpec([graphs.pairs, t, width], name=ITEM_STATES),
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


def write_litert(run: Run, model: Ranker, directory: str) -> LiteRtGraphs | None:
    """Writes a file for each precision of `export.litert` that agrees with the student on the validation split.

    directory: the version's. Returns what the manifest says of the files; None where there are none.
    """
    if not (asked := run.config.export.litert):
        return None
    if reason := _no_litert(model):
        print(f"  no LiteRT files: {reason}", flush=True)
        return None
    encoder: Any = model.encoder
    config = encoder.config
    graphs = LiteRtGraphs(
        pairs=PAIRS,
        context_lengths=_lengths(config.max_context_tokens + 1, most=SHORT_CONTEXT),
        item_lengths=_lengths(config.max_item_tokens + 1),
        split=config.split_layers > 0,
        features={f.name: f.level for f in model.others},
        precisions={},
    )
    example = run.train.example["regular"]
    contents = {precision: _converted(model, graphs, example, precision) for precision in asked}
    kept = {}
    for precision, content in contents.items():
        agreement = _agreement(content, graphs, model, run.validation, run.config.evaluation.cutoffs[0])
        refusal = refused(precision, agreement, run.config.export)
        if refusal is None:
            kept[precision] = agreement
            write_file(f"{directory}/{litert_file(precision)}", content)
        told = f"NDCG {agreement.ndcg_change:+.2%}, Kendall tau {agreement.kendall_tau:.4f}"
        print(f"  LiteRT {precision}: {told}, {refusal or 'kept'}", flush=True)
    return graphs.model_copy(update={"precisions": kept}) if kept else None


def _no_litert(model: Ranker) -> str | None:
    """Why a student is not for LiteRT, or None."""
    if model.encoder is None:
        return "the student has no transformer"
    if model.interaction is not None:
        return "its items are scored together (student.interaction), not a few at a time"
    if model.compute_dtype != "float32":
        return f"its arithmetic is {model.compute_dtype}"
    return None


def _lengths(longest: int, most: int = LENGTHS[-1]) -> tuple[int, ...]:
    """LENGTHS well below `longest`, none over `most`, and that itself."""
    return (*(length for length in LENGTHS if length < WELL_BELOW * longest and length <= most), longest)


def _converted(model: Ranker, graphs: LiteRtGraphs, example: Tensors, precision: Precision) -> bytes:
    """The student's graphs as one LiteRT file."""
    encoder: Any = model.encoder
    encoder.one_product = precision == "int8"
    shaped = Shaped(model, graphs, example)
    signatures = shaped.signatures()
    encoder.one_product = False
    with tempfile.TemporaryDirectory() as saved, _quiet():
        tf.saved_model.save(shaped, saved, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=list(signatures))
        converter.exclude_conversion_metadata = True  # writing it takes longer than all else
        content = bytes(converter.convert())
        return content if precision == "float" else _in_int8(content)


def _in_int8(content: bytes) -> bytes:
    """A LiteRT file with the weights of the transformer's layers in 8 bits, a scale for each column; products with
    them round what they take, a scale for each token.

    The rest takes little time, and its numbers are of many sizes: rounding it, as TensorFlow's own converter does,
    would change the order of items far more than rounding the layers.
    """
    quantizer = Quantizer(content)
    quantizer.add_dynamic_config(LAYERS, qtyping.TFLOperationName.FULLY_CONNECTED, num_bits=8)
    return bytes(quantizer.quantize(enable_progress_bar=False, enable_progress_report=False).quantized_model)


@contextmanager
def _quiet() -> Iterator[None]:
    """What the converter's C++ says on stderr is for its authors; its errors are exceptions."""
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _agreement(content: bytes, graphs: LiteRtGraphs, model: Ranker, batches: Batches, cutoff: int) -> Agreement:
    """Compares the scores of a LiteRT file with the student's, on labelled groups."""
    engine, found, taus, differences = Engine(content, graphs), [], [], []
    for batch, logits in inferred(model, batches):
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


def refused(precision: Precision, agreement: Agreement, gate: ExportConfig) -> str | None:
    """Why a precision is left out, or None."""
    if not abs(agreement.ndcg_change) <= gate.largest_ndcg_change:
        return f"left out, more than {gate.largest_ndcg_change:.1%} of NDCG"
    if not agreement.kendall_tau >= gate.least_kendall_tau:
        return f"left out, Kendall tau below {gate.least_kendall_tau}"
    if precision == "float" and not agreement.largest_difference <= FLOAT_DIFFERENCE:
        return f"left out, a logit differs by {agreement.largest_difference:.2g}"
    return None
