"""Scores a student without a gateway on one core: by LiteRT, and by its peer, ONNX Runtime with int8 weights."""

import itertools
import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from features.manifest import LiteRtGraphs
from inference.litert_engine import Engine, Tokens
from serving.backends.litert import litert_graphs_of, select_precision
from serving.backends.saved_model import SavedModel
from serving.exports.store import find_version, verified_copy
from trainer.export.litert import FixedShapeGraphs
from trainer.models.transformer import SEPARATOR_ID
from trainer.pipeline.run import Run
from trainer.pipeline.students import load_student

logging.disable(logging.WARNING)  # tf2onnx and ONNX Runtime log much for each graph


class TokenisedRequest(NamedTuple):
    """Tokens of a request's context and items, each ending with the separator."""

    context: Tokens
    items: list[Tokens]


class BareStudent:
    """A run's newest export: the LiteRT file that a gateway would choose on this machine, and the tokeniser.

    Errors: InputError without such a file.
    """

    def __init__(self, run: Run) -> None:
        directory = f"{run.workdir}/export"
        self._run, self._student = run, run.config.student
        with verified_copy(directory, find_version(directory)) as model:
            self.graphs = litert_graphs_of(model)
            self.precision, _, self.engine = select_precision(model, self.graphs, "auto")
            self._saved_model = SavedModel(model)

    def tokenise(self, query: str, titles: Sequence[str]) -> TokenisedRequest:
        """Tokenises query and titles by the exported graph, in one call."""
        rows, lengths = self._saved_model.tokenize([query, *titles])
        limits = itertools.chain([self._student.max_context_tokens], itertools.repeat(self._student.max_item_tokens))
        context, *items = (
            np.append(row[: min(length, limit)], np.int32(SEPARATOR_ID))
            for row, length, limit in zip(rows, lengths, limits, strict=False)
        )
        return TokenisedRequest(context, items)

    def onnx_engine(self) -> "OnnxEngine":
        return OnnxEngine(self._run, self.graphs)


class OnnxEngine(Engine):
    """The student's graphs with the same tokens and padding, in ONNX Runtime with int8 weights."""

    def __init__(self, run: Run, graphs: LiteRtGraphs) -> None:
        model = load_student(run, run.config.recipes[run.config.export.recipe])
        shaped = FixedShapeGraphs(model, graphs, run.train.example["regular"])
        self._graphs = graphs
        self._run = {name: _in_onnx_runtime(graph) for name, graph in shaped.signatures().items()}


def _in_onnx_runtime(graph: Any) -> Callable[..., Mapping[str, Any]]:
    """Converts a scoring graph to ONNX. Returns it as a function of arrays."""
    specs = graph.structured_input_signature[0]
    function = tf.function(
        lambda context_tokens, item_tokens: graph(context_tokens=context_tokens, item_tokens=item_tokens), specs
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        tf2onnx.convert.from_function(function, specs, opset=17, output_path=f"{folder}/float.onnx")
        # 7-bit weights, as ONNX Runtime advises for processors whose int8 products would saturate
        quantize_dynamic(f"{folder}/float.onnx", f"{folder}/int8.onnx", weight_type=QuantType.QInt8, reduce_range=True)
        session = onnxruntime.InferenceSession(f"{folder}/int8.onnx", options, providers=["CPUExecutionProvider"])
    return lambda **inputs: {"score": session.run(None, inputs)[0]}
