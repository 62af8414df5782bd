"""The common rerank shape, as many clients speak it: `query` and `documents` in, `index` and `relevance_score` out.

It is /rank in other words: the documents are the items, and a document's `text` is the item's.
"""

from dataclasses import dataclass, replace
from typing import Any

from features.values import shown
from serving.problems import Problem, pointer_to
from serving.schemas import RankRequest, RequestReader

OPTIONS = {"documents", "model", "top_n", "return_documents"}


@dataclass(frozen=True, slots=True)
class RerankShape:
    """The shape for one model's features. Further features are welcome under their names, at the top or in a document.

    query, text: the features that the shape's two names stand for.
    """

    reader: RequestReader
    query: str
    text: str

    @property
    def names(self) -> set[str]:
        """What a body may name."""
        return {"query"} | OPTIONS | (self.reader.context_names - {self.query})

    @property
    def names_in_document(self) -> set[str]:
        return {"text"} | (self.reader.item_names - {self.text})

    def read(self, raw: Any, model: str) -> RankRequest:
        """A parsed /v1/rerank body, to the model of that name. Errors: Problem."""
        if not isinstance(raw, dict):
            raise Problem("invalid-request", f"The body is {shown(raw)}, expected one JSON object", "#")
        self.reader.unknown.refuse_in(raw, self.names, ())
        if raw.get("model") not in (None, model):
            raise Problem("model-not-served", f"model is {shown(raw['model'])}, but {model} is served", "#/model")
        documents = raw.get("documents")
        if not isinstance(documents, list):
            raise Problem("invalid-request", f"documents is {shown(documents)}, expected a list", "#/documents")
        known = self.names_in_document
        items = [self._item_of(document, index, known) for index, document in enumerate(documents)]
        options = {"top_n": raw.get("top_n"), "return_titles": raw.get("return_documents")}
        context = {name: value for name, value in raw.items() if name not in {"query", *OPTIONS}}
        try:
            return self.reader.check({**context, self.query: raw.get("query"), "items": items, **options})
        except Problem as problem:
            raise replace(problem, pointer=self._pointer_back(problem.pointer)) from None

    def _item_of(self, document: Any, index: int, known: set[str]) -> Any:
        if not isinstance(document, dict):
            return document
        self.reader.unknown.refuse_in(document, known, ("documents", index))
        return {self.text if name == "text" else name: value for name, value in document.items()}

    def _pointer_back(self, pointer: str | None) -> str | None:
        """Where the rerank body has what `pointer` names in the body of /rank."""
        if pointer is None:
            return None
        first, *rest = pointer[2:].split("/")
        if first == "items":
            return pointer_to("documents") + "".join("/" + ("text" if step == self.text else step) for step in rest)
        names = {self.query: "query", "return_titles": "return_documents"}
        return pointer_to(names[first]) if first in names else pointer


def shape_for(reader: RequestReader) -> RerankShape | None:
    """None where the features do not fit: the shape needs one query text and one item text, and its own names free."""
    if reader.asked is None or reader.bare is None:
        return None
    shape = RerankShape(reader, reader.asked.name, reader.bare.name)
    taken = (reader.context_names - {shape.query}) & {"query", *OPTIONS} | (reader.item_names - {shape.text}) & {"text"}
    return None if taken else shape
