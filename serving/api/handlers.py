"""Handlers of the three ranking request formats: body in, response out. Independent of HTTP."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from serving.models.loaded_model import Handler, LoadedModel, Models
from serving.observability.request_record import RequestRecord, Scores, Usage
from serving.problems import Problem
from serving.ranking.body_decoder import BodyDecoder, Mismatch, Scalar, check_utf8, struct_of
from serving.ranking.rank_request import RankRequest

if TYPE_CHECKING:
    from serving.ranking.ranker import RankedItem, Ranking

_Json = dict[str, Any]
_VERSION = BodyDecoder(struct_of("Version", {"model_version": Scalar}, strict=False))


def answer(handler: Handler, body: bytes, models: Models, record: RequestRecord) -> bytes:
    """Returns the response to a body, as JSON. Errors: Problem."""
    members = handler(body, models, record)
    with record.stage("answer"):
        return orjson.dumps(members)


def rank(body: bytes, models: Models, record: RequestRecord) -> _Json:
    """/v1/rank: one query group."""
    with record.stage("read"):
        check_utf8(body)
        entry = _read(body, models)
    [ranking] = _rank_all([entry], record)
    return {"request_id": record.request_id, **_members(_or_raise(ranking))}


def batch(body: bytes, models: Models, record: RequestRecord) -> _Json:
    """/v1/rank/batch: several bodies of /rank. Each gets its own ranking or problem."""
    with record.stage("read"):
        check_utf8(body)
        entries = _read_batch(body, models)
    answers = []
    for index, outcome in enumerate(_rank_all(entries, record)):
        if isinstance(outcome, Problem):
            record.problems.append(outcome.slug)
            answers.append({"problem": outcome.below("queries", index).to_json()})
        else:
            answers.append(_members(outcome))
    return {"request_id": record.request_id, "answers": answers, "usage": asdict(record.usage or Usage())}


def rerank(body: bytes, models: Models, record: RequestRecord) -> _Json:
    """/v1/rerank: one query and its documents, in the common rerank format."""
    served = models.current
    if served.rerank is None:
        detail = f"{served.name} does not read one query text and one item text, or has a feature of this shape's names"
        raise Problem("not-found", f"{detail}: use /v1/rank")
    with record.stage("read"):
        check_utf8(body)
        request = served.rerank.read(body, served.name)
    ranking = _or_raise(_rank_all([(served, request)], record)[0])
    results = [_rerank_result(item, served.rerank.text) for item in ranking.results]
    usage = {"total_tokens": ranking.usage.tokens}
    return {"id": record.request_id, "model": served.name, "results": results, "usage": usage}


def _read_batch(body: bytes, models: Models) -> list[tuple[LoadedModel, RankRequest] | Problem]:
    """Parses a batch: for each entry its model and request, or its problem. Errors: Problem."""
    limits = models.current.reader.limits
    entries = [_read_or_problem(entry, models) for entry in models.current.batch.read(body)]
    pairs = sum(len(entry[1].ids) for entry in entries if not isinstance(entry, Problem))
    if pairs > limits.items:
        detail = f"the queries have {pairs} items together, expected at most {limits.items}: send several batches"
        raise Problem("invalid-request", detail, "#/queries")
    return entries


def _read(body: bytes | msgspec.Raw, models: Models) -> tuple[LoadedModel, RankRequest]:
    """Parses a body of /rank into the requested model and the request. Errors: Problem."""
    served = models.requested(_version_in(body))
    return served, served.reader.read(body)


def _version_in(body: bytes | msgspec.Raw) -> Any:
    """Reads a body's `model_version`, which selects the reader; None if absent or left to the reader to refuse."""
    plain = bytes(body)
    if b"model_version" not in plain and b"\\u" not in plain:  # a JSON name may contain escapes
        return None
    try:
        [version] = _VERSION.decode(body)
    except Mismatch:
        return None
    return version


def _read_or_problem(body: msgspec.Raw, models: Models) -> tuple[LoadedModel, RankRequest] | Problem:
    try:
        return _read(body, models)
    except Problem as problem:
        return problem


def _rank_all(
    entries: Sequence[tuple[LoadedModel, RankRequest] | Problem], record: RequestRecord
) -> "list[Ranking | Problem]":
    """Ranks each request by its model. Keeps the order, and the problems of entries that could not be parsed."""
    by_index: dict[int, Ranking | Problem] = {}
    requests = dict[LoadedModel, dict[int, RankRequest]]()
    for index, entry in enumerate(entries):
        if isinstance(entry, Problem):
            by_index[index] = entry
        else:
            requests.setdefault(entry[0], {})[index] = entry[1]
    for model, its_requests in requests.items():
        record.versions.append(model.version)
        by_index |= zip(its_requests, model.ranker.rank(list(its_requests.values()), record), strict=True)
    outcomes = [by_index[index] for index in range(len(entries))]
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


def _members(ranking: "Ranking") -> _Json:
    return {
        "model": {"name": ranking.name, "version": ranking.version},
        "results": [_result(item) for item in ranking.results],
        "usage": asdict(ranking.usage),
    }


def _result(item: "RankedItem") -> _Json:
    result: _Json = {**item.texts, "id": item.id, "index": item.index, "score": item.score}
    if item.debug is not None:
        result["debug"] = item.debug
    return result


def _rerank_result(item: "RankedItem", text: str) -> _Json:
    result: _Json = {"index": item.index, "relevance_score": item.score}
    if item.texts:
        result["document"] = {"text": item.texts[text]}
    return result
