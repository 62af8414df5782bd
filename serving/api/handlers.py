"""The three shapes of a ranking request: a body in, an answer out. Nothing here knows HTTP."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson

from features.values import shown
from serving.problems import Problem
from serving.record import Record, Scores, Usage
from serving.schemas import RankRequest
from serving.served import Models, Served
from serving.strict_json import parse_json, refusing_depth

if TYPE_CHECKING:
    from serving.ranking import RankedItem, Ranking

Json = dict[str, Any]
Shape = Callable[[Any, Models, Record], Json]
"""A parsed body to the members of its answer. Errors: Problem."""


def answer(shape: Shape, body: bytes, models: Models, record: Record) -> bytes:
    """The answer to a body, as JSON. Errors: Problem."""
    with record.stage("read"):
        raw = parse_json(body)
    members = shape(raw, models, record)
    with record.stage("answer"):
        return orjson.dumps(members)


def rank(raw: Any, models: Models, record: Record) -> Json:
    """/v1/rank: one query group."""
    with record.stage("read"), refusing_depth():
        asked = _read(raw, models)
    [ranking] = _ranked([asked], record)
    return {"request_id": record.request_id, **_members(_or_raise(ranking))}


def batch(raw: Any, models: Models, record: Record) -> Json:
    """/v1/rank/batch: several bodies of /rank. Each has its answer or its problem, which leaves the others alone."""
    with record.stage("read"), refusing_depth():
        entries = [_read_or_problem(entry, models) for entry in _queries(raw, models.current)]
    answers = []
    for place, outcome in enumerate(_ranked(entries, record)):
        if isinstance(outcome, Problem):
            record.problems.append(outcome.slug)
            answers.append({"problem": outcome.below("queries", place).to_json()})
        else:
            answers.append(_members(outcome))
    return {"request_id": record.request_id, "answers": answers, "usage": asdict(record.usage or Usage())}


def rerank(raw: Any, models: Models, record: Record) -> Json:
    """/v1/rerank: one query and its documents, in the shape that many clients speak."""
    served = models.current
    if served.rerank is None:
        told = f"{served.name} does not read one query text and one item text, or has a feature of this shape's names"
        raise Problem("not-found", f"{told}: use /v1/rank")
    with record.stage("read"), refusing_depth():
        request = served.rerank.read(raw, served.name)
    ranking = _or_raise(_ranked([(served, request)], record)[0])
    results = [_rerank_result(item, served.rerank.text) for item in ranking.results]
    usage = {"total_tokens": ranking.usage.tokens}
    return {"id": record.request_id, "model": served.name, "results": results, "usage": usage}


def _queries(raw: Any, served: Served) -> list[Any]:
    """A batch's entries, not read yet. Errors: Problem."""
    if not isinstance(raw, dict):
        raise Problem("invalid-request", f"The body is {shown(raw)}, expected one JSON object", "#")
    served.reader.unknown.refuse_in(raw, {"queries"}, ())
    queries, limits = raw.get("queries"), served.reader.limits
    if not isinstance(queries, list) or not 1 <= len(queries) <= limits.queries:
        found = f"{len(queries)} entries" if isinstance(queries, list) else shown(queries)
        told = f"queries is {found}, expected a list of 1 to {limits.queries}"
        raise Problem("invalid-request", told, "#/queries")
    items = [entry.get("items") for entry in queries if isinstance(entry, dict)]
    if (pairs := sum(len(listed) for listed in items if isinstance(listed, list))) > limits.items:
        told = f"the queries have {pairs} items together, expected at most {limits.items}: send several batches"
        raise Problem("invalid-request", told, "#/queries")
    return queries


def _read(raw: Any, models: Models) -> tuple[Served, RankRequest]:
    """Whom a body of /rank asks, and what. Errors: Problem."""
    served = models.asked_by(raw)
    return served, served.reader.check(raw)


def _read_or_problem(raw: Any, models: Models) -> tuple[Served, RankRequest] | Problem:
    try:
        return _read(raw, models)
    except Problem as problem:
        return problem


def _ranked(asked: Sequence[tuple[Served, RankRequest] | Problem], record: Record) -> "list[Ranking | Problem]":
    """Each request ranked by its model, in their order; what could not be read stays its problem."""
    found: dict[int, Ranking | Problem] = {}
    requests = dict[Served, dict[int, RankRequest]]()
    for place, entry in enumerate(asked):
        if isinstance(entry, Problem):
            found[place] = entry
        else:
            requests.setdefault(entry[0], {})[place] = entry[1]
    for model, of_model in requests.items():
        record.versions.append(model.version)
        found |= zip(of_model, model.ranker.rank(list(of_model.values()), record), strict=True)
    outcomes = [found[place] for place in range(len(asked))]
    for outcome in outcomes:
        if isinstance(outcome, Problem):
            record.scores.append(None)
        else:
            record.scores.append(Scores(outcome.version, outcome.scores))
            record.usage = (record.usage or Usage()) + outcome.usage
    return outcomes


def _or_raise(ranking: "Ranking | Problem") -> "Ranking":
    if isinstance(ranking, Problem):
        raise ranking
    return ranking


def _members(ranking: "Ranking") -> Json:
    return {
        "model": {"name": ranking.name, "version": ranking.version},
        "results": [_result(item) for item in ranking.results],
        "usage": asdict(ranking.usage),
    }


def _result(item: "RankedItem") -> Json:
    result: Json = {**item.texts, "id": item.id, "index": item.index, "score": item.score}
    if item.debug is not None:
        result["debug"] = item.debug
    return result


def _rerank_result(item: "RankedItem", text: str) -> Json:
    result: Json = {"index": item.index, "relevance_score": item.score}
    if item.texts:
        result["document"] = {"text": item.texts[text]}
    return result
