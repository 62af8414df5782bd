"""A student's scores without a gateway: by LiteRT, and by its peer, ONNX Runtime with int8 weights. On one core."""

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

from features.litert import Engine, Tokens
from features.manifest import LiteRtGraphs
from serving.litert import fastest, graphs_of
from serving.model_store import find_version, verify
from serving.saved_model import SavedModel
from trainer.encoders import SEPARATOR_ID
from trainer.litert import Shaped
from trainer.run import Run
from trainer.students import load_student

logging.disable(logging.WARNING)  # tf2onnx and ONNX Runtime say a lot for each graph


class Tokenised(NamedTuple):
    """A request's sides, each with its separator."""

    context: Tokens
    items: list[Tokens]


class BareStudent:
    """A run's newest export: the LiteRT file that a gateway would take here, and the tokeniser.

    Errors: InputError without such a file.
    """

    def __init__(self, run: Run) -> None:
        directory = f"{run.workdir}/export"
        model = verify(directory, find_version(directory))
        self._run, self.graphs, self._student = run, graphs_of(model), run.config.student
        self.precision, _, self.engine = fastest(model, self.graphs, "auto")
        self._saved_model = SavedModel(model)

    def tokenised(self, query: str, titles: Sequence[str]) -> Tokenised:
        """By the exported graph, in one call."""
        rows, lengths = self._saved_model.tokenize([query, *titles])
        limits = itertools.chain([self._student.max_context_tokens], itertools.repeat(self._student.max_item_tokens))
        context, *items = (
            np.append(row[: min(length, limit)], np.int32(SEPARATOR_ID))
            for row, length, limit in zip(rows, lengths, limits, strict=False)
        )
        return Tokenised(context, items)

    def onnx_engine(self) -> "OnnxEngine":
        return OnnxEngine(self._run, self.graphs)


class OnnxEngine(Engine):
    """The same weights and graphs, called with the same tokens and paddings, in ONNX Runtime with int8 weights."""

    def __init__(self, run: Run, graphs: LiteRtGraphs) -> None:
        model = load_student(run, run.config.recipes[run.config.export.recipe])
        shaped = Shaped(model, graphs, run.train.example["regular"])
        self._graphs = graphs
        self._run = {name: _in_onnx_runtime(graph) for name, graph in shaped.signatures().items()}


def _in_onnx_runtime(graph: Any) -> Callable[..., Mapping[str, Any]]:
    """A graph of both sides' tokens that scores, as a function of arrays."""
    specs = graph.structured_input_signature[0]
    function = tf.function(
        lambda context_tokens, item_tokens: graph(context_tokens=context_tokens, item_tokens=item_tokens), specs
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        tf2onnx.convert.from_function(function, specs, opset=17, output_path=f"{folder}/float.onnx")
        # weights of seven bits, as ONNX Runtime advises where a processor's sums of int8 products would overflow
        quantize_dynamic(f"{folder}/float.onnx", f"{folder}/int8.onnx", weight_type=QuantType.QInt8, reduce_range=True)
        session = onnxruntime.InferenceSession(f"{folder}/int8.onnx", options, providers=["CPUExecutionProvider"])
    return lambda **inputs: {"score": session.run(None, inputs)[0]}
