"""Impressions put together from parts: which part shows what, and each part's fate, by hand."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.joins.attribution import AttributionRules, ItemRefusal, LoggedEvent, Request, attribute
from beam_jobs.joins.query_groups import add_reader_fates
from beam_jobs.joins.showings import POSITIONS_FROM_0, assemble
from beam_jobs.sources.native_log import QUERY, Event
from tests.beam_jobs.log_lines import HOUR, NOON

RULES = AttributionRules(
    {"click": HOUR, "add_to_cart": HOUR, "purchase": HOUR, "refund": HOUR}, min_items=2, max_items=4
)


def part(*items: tuple[Any, int], at: int = 0, query: str | None = "sofa", kind: str = "impression") -> LoggedEvent:
    """items: (id, position) pairs."""
    body = {"query": query, "items": [{"item_id": key, "position": place} for key, place in items]}
    event_id = f"{kind}/{at}/{items}/{query}"
    return LoggedEvent(Event(kind, event_id, NOON + at, "r1", "", body), event_id.encode())


def click(item: str, at: int = 9) -> LoggedEvent:
    return LoggedEvent(Event("click", f"click/{item}/{at}", NOON + at, "r1", "", {"item_id": item}), b"click")


def run(*logged: LoggedEvent, base: int = 0) -> tuple[list[tuple[str, int]], list[tuple[str, str, str]], Request]:
    """(item, position) pairs, and (line, fate, reason) of every record."""
    request = assemble(logged, base)
    result = attribute(
        request.logged,
        RULES,
        lambda ids, raw_items: [ItemRefusal("x", "y") if "bad" in ids else raw for raw in raw_items],
    )
    fates = add_reader_fates(result, request).fates
    items = list(zip(result.items.ids, result.items.positions, strict=True))
    return items, sorted((fate.logged.line.decode(), fate.fate, fate.reason) for fate in fates), request


def fates(*logged: LoggedEvent, base: int = 0) -> list[tuple[str, str]]:
    """(fate, reason) of each of these records, in their order."""
    found = {line: (fate, reason) for line, fate, reason in run(*logged, base=base)[1]}
    return [found[entry.line.decode()] for entry in logged]


def test_parts_of_one_item_each_make_one_impression_at_the_time_of_the_first():
    items, _, request = run(part(("b", 2), at=5), part(("a", 1), at=3), base=1)
    assert items == [("a", 0), ("b", 1)]
    assert request.logged[0].event.timestamp_ms == NOON + 3


def test_pages_of_items_make_one_list():
    assert run(part(("a", 0), ("b", 1)), part(("c", 2), at=4000))[0] == [("a", 0), ("b", 1), ("c", 2)]


def test_an_item_shown_again_counts_at_its_first_place_and_its_record_is_a_duplicate():
    again = part(("a", 7), at=1)
    assert run(part(("a", 0)), part(("b", 1)), again)[0] == [("a", 0), ("b", 1)]
    assert fates(part(("a", 0)), part(("b", 1)), again) == [("used", ""), ("used", ""), ("duplicate", "")]


def test_a_page_with_one_new_item_is_used():
    assert fates(part(("a", 0), ("b", 1)), part(("a", 0), ("c", 2), at=1)) == [("used", ""), ("used", "")]


def test_records_of_refused_and_capped_items_have_those_fates():
    parts = [part((key, place)) for place, key in enumerate(["a", "bad", "c", "d", "e", "f"])]
    assert [fate for fate, _ in fates(*parts)] == ["used", "malformed", "used", "used", "used", "capped"]


def test_too_few_items_refuse_every_record_of_the_request():
    text = part(kind=QUERY)
    assert fates(part(("a", 0)), text, click("a")) == [
        ("malformed", "too_few_items"), ("unmatched", "impression_refused"), ("unmatched", "impression_refused"),
    ]  # fmt: skip


def test_the_text_comes_from_the_query_record_where_impressions_tell_none():
    before, after = part(at=-5, query="so", kind=QUERY), part(at=7, query="sofa bed", kind=QUERY)
    shown = [part(("a", 0), query=None), part(("b", 1), query=None)]
    assert run(*shown, before, after)[2].logged[0].event.body["query"] == "so"
    assert fates(*shown, before, after) == [
        ("used", ""), ("used", ""), ("used", ""), ("unmatched", "other_query_text"),
    ]  # fmt: skip


def test_records_of_another_text_under_the_same_id_do_not_mix_in():
    other = part(("z", 0), at=50, query="lamp")
    assert run(part(("a", 0)), part(("b", 1)), other)[0] == [("a", 0), ("b", 1)]
    assert fates(part(("a", 0)), part(("b", 1)), other)[-1] == ("unmatched", "other_query_text")


def test_a_query_recorded_twice_is_a_duplicate():
    texts = [part(at=-5, kind=QUERY), part(at=-4, kind=QUERY)]
    assert fates(part(("a", 0)), part(("b", 1)), *texts)[2:] == [("used", ""), ("duplicate", "")]


def test_results_listed_by_the_query_stand_in_where_no_impression_was_recorded():
    listed = part(("a", 1), ("b", 2), kind=QUERY)
    items, found, _ = run(listed, click("b"), base=1)
    assert items == [("a", 0), ("b", 1)]
    assert [fate for _, fate, _ in found] == ["used", "used"]
    assert run(listed, part(("c", 1)), part(("d", 2)), base=1)[0] == [("c", 0), ("d", 1)]


def test_a_query_that_showed_nothing_is_unmatched():
    assert fates(part(kind=QUERY), click("a")) == [
        ("unmatched", "query_without_impression"), ("unmatched", "unknown_request"),
    ]  # fmt: skip


def test_impressions_whose_query_nobody_tells_are_unmatched():
    assert fates(part(("a", 0), query=None), part(("b", 1), query=None)) == [("unmatched", "query_unknown")] * 2


def test_a_list_from_0_where_the_base_is_1_keeps_its_top_and_is_noted():
    items, _, request = run(part(("a", 0)), part(("b", 1)), base=1)
    assert (items, request.notes) == ([("a", 0), ("b", 1)], (POSITIONS_FROM_0,))
    assert run(part(("a", 1)), part(("b", 2)), base=1)[2].notes == ()


RECORDS = st.one_of(
    st.builds(
        lambda items, at, query: part(*items, at=at, query=query),
        st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d", "e", "bad", None]), st.integers(0, 5)), max_size=3),
        st.integers(0, 5),
        st.sampled_from(["sofa", "lamp", None]),
    ),
    st.builds(
        lambda items, at, query: part(*items, at=at, query=query, kind=QUERY),
        st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 5)), max_size=2),
        st.integers(0, 5),
        st.sampled_from(["sofa", "lamp", None]),
    ),
    st.builds(click, st.sampled_from(["a", "b", "z"]), st.integers(0, 9)),
)


@settings(max_examples=200)
@given(st.lists(RECORDS, max_size=10), st.sampled_from([0, 1]))
def test_every_record_has_exactly_one_fate(logged, base):
    assert [line for line, _, _ in run(*logged, base=base)[1]] == sorted(entry.line.decode() for entry in logged)
