"""The rerank API that many clients use: `query` and `documents` in, `index` and `relevance_score` out.

It is /rank with other field names: the documents are the items, and a document's `text` is the item's text feature.
"""

from dataclasses import dataclass

import msgspec

from features.values import truncated_repr
from serving.problems import Problem
from serving.ranking.rank_request import BodyShape, RankRequest, RequestReader

_OPTIONS = {"top_n": "top_n", "return_titles": "return_documents", "model": "model"}
_NAMES = {"query", "documents", *_OPTIONS.values()}


@dataclass(frozen=True, slots=True)
class RerankShape:
    """The rerank shape for one model. Other features keep their names, at the top level or in a document.

    query, text: the names of the features that the fields `query` and `text` carry.
    """

    reader: RequestReader
    query: str
    text: str

    @property
    def names(self) -> set[str]:
        """The fields that a body may have."""
        return _NAMES | (self.reader.context_names - {self.query})

    def read(self, body: bytes | msgspec.Raw, model: str) -> RankRequest:
        """Reads a UTF-8 /v1/rerank body for the model of that name. Raises: Problem."""
        request = self.reader.read(body)
        if request.model not in (None, model):
            raise Problem(
                "model-not-served", f"model is {truncated_repr(request.model)}, but {model} is served", "#/model"
            )
        return request


def shape_for(reader: RequestReader) -> RerankShape | None:
    """Returns the rerank shape for the model whose /rank bodies `reader` reads.

    Returns None if the features do not fit: the shape needs one required query text and one required item text, and no
    other feature may have the name of one of its fields.
    """
    if reader.query is None or reader.bare is None:
        return None
    query, text = reader.query.name, reader.bare.name
    if (reader.context_names - {query}) & _NAMES or (reader.item_names - {text}) & {"text"}:
        return None
    shape = BodyShape("documents", _OPTIONS, {query: "query", text: "text"}, id="")
    return RerankShape(RequestReader(reader.spec, reader.limits, shape), query, text)
