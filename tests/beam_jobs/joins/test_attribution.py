"""One request's events: hand-made logs, fates counted by hand."""

import itertools
from collections.abc import Sequence
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.joins.attribution import (
    Attribution,
    AttributionRules,
    ItemRefusal,
    LoggedEvent,
    attribute,
    refuse_request,
)
from beam_jobs.sources.native_log import Event, read_event
from tests.beam_jobs.log_lines import HOUR, NOON, act, impression

RULES = AttributionRules({"click": HOUR, "add_to_cart": 24 * HOUR, "purchase": 168 * HOUR, "refund": 720 * HOUR}, 2, 3)


def run(*events: dict[str, Any], rules: AttributionRules = RULES, unusable: str = "") -> Attribution:
    def read_items(ids: Sequence[str], raw_items: Sequence[dict[str, Any]]) -> list[Any]:
        refusal = ItemRefusal("title_missing", "no title")
        return [refusal if key == unusable else raw for key, raw in zip(ids, raw_items, strict=True)]

    logged = []
    for fields in events:
        line = orjson.dumps(fields)
        event = read_event(line)
        assert isinstance(event, Event)
        logged.append(LoggedEvent(event, line))
    return attribute(logged, rules, read_items)


def fates(result: Attribution) -> list[tuple[str, str, str]]:
    return sorted((fate.logged.event.type, fate.fate, fate.reason) for fate in result.fates)


SHOWN = impression("r1", "sofa", "p1", "p2", "p3")


def test_each_interaction_reaches_its_item():
    result = run(SHOWN, act("click", "r1", "p2"), act("add_to_cart", "r1", "p2"), act("purchase", "r1", "p3"))
    assert result.interacted == {"click": {"p2"}, "add_to_cart": {"p2"}, "purchase": {"p3"}}
    assert {fate for _, fate, _ in fates(result)} == {"used"}


def test_items_come_by_position():
    items = [{"item_id": "p1", "position": 2}, {"item_id": "p2", "position": 0}]
    found = run(impression("r1", "sofa", *items)).items
    assert (list(found.ids), list(found.positions)) == (["p2", "p1"], [0, 2])


def test_the_same_event_id_counts_once():
    click = act("click", "r1", "p1", event_id="e1")
    assert fates(run(SHOWN, SHOWN, click, click)) == [
        ("click", "duplicate", ""), ("click", "used", ""), ("impression", "duplicate", ""), ("impression", "used", ""),
    ]  # fmt: skip


def test_a_repeated_impression_is_a_duplicate_and_the_first_counts():
    later = impression("r1", "sofa", "p1", "p2", "p3", at=NOON + 5, event_id="again")
    other = impression("r1", "sofa", "p8", "p9", at=NOON + 9, event_id="other")
    result = run(other, later, SHOWN)
    assert list(result.items.ids) == ["p1", "p2", "p3"]
    assert fates(result) == [
        ("impression", "duplicate", ""), ("impression", "duplicate", "second_impression"), ("impression", "used", ""),
    ]  # fmt: skip


def test_windows_are_per_type_and_their_last_millisecond_is_inside():
    result = run(
        SHOWN,
        act("click", "r1", "p1", at=NOON + HOUR),
        act("click", "r1", "p2", at=NOON + HOUR + 1),
        act("purchase", "r1", "p2", at=NOON + 168 * HOUR),
    )
    assert result.interacted == {"click": {"p1"}, "add_to_cart": set(), "purchase": {"p2"}}
    assert ("click", "late", "late") in fates(result)


def test_an_interaction_before_its_impression_is_unmatched():
    assert ("click", "unmatched", "before_impression") in fates(run(SHOWN, act("click", "r1", "p1", at=NOON - 1)))
    assert run(SHOWN, act("click", "r1", "p1", at=NOON)).interacted["click"] == {"p1"}


def test_an_interaction_with_an_item_that_was_not_shown_is_unmatched():
    assert ("click", "unmatched", "item_not_shown") in fates(run(SHOWN, act("click", "r1", "p9")))


def test_a_request_without_an_impression_is_unknown():
    result = run(act("click", "r1", "p1"))
    assert result.impression is None
    assert fates(result) == [("click", "unmatched", "unknown_request")]


def test_items_beyond_max_items_are_capped_with_their_interactions():
    result = run(
        impression("r1", "sofa", "p1", "p2", "p3", "p4", "p5"), act("click", "r1", "p4"), act("click", "r1", "p3")
    )
    assert (list(result.items.ids), result.items_capped) == (["p1", "p2", "p3"], 2)
    assert result.interacted["click"] == {"p3"}
    assert ("click", "capped", "item_capped") in fates(result)


def test_an_unusable_item_is_left_out_and_the_group_stays():
    result = run(SHOWN, act("click", "r1", "p2"), act("click", "r1", "p1"), unusable="p2")
    assert list(result.items.ids) == ["p1", "p3"]
    assert [item.reason for item in result.refused_items] == ["title_missing"]
    assert ("click", "unmatched", "item_refused") in fates(result)


def test_too_few_usable_items_refuse_the_impression_and_its_interactions():
    result = run(impression("r1", "sofa", "p1", "p2"), act("click", "r1", "p1"), unusable="p2")
    assert result.impression is None
    assert fates(result) == [("click", "unmatched", "impression_refused"), ("impression", "malformed", "too_few_items")]


def test_items_without_id_with_a_wrong_position_or_shown_twice_are_refused():
    items = ["p1", {"position": 1}, {"item_id": "p2", "position": -1}, "p1", {"item_id": 3}]
    result = run(impression("r1", "sofa", *items))
    assert list(result.items.ids) == ["p1", "3"]
    assert [item.reason for item in result.refused_items] == ["item_id_missing", "position_invalid", "item_shown_twice"]


def test_an_impression_refused_as_a_whole_leaves_nothing_used():
    result = refuse_request(run(SHOWN, act("click", "r1", "p1"), act("click", "r1", "p9")), "query_missing", "no query")
    assert fates(result) == [
        ("click", "unmatched", "impression_refused"), ("click", "unmatched", "item_not_shown"),
        ("impression", "malformed", "query_missing"),
    ]  # fmt: skip


def test_a_refund_takes_back_the_purchases_before_it():
    bought, back = act("purchase", "r1", "p1", at=NOON + 5), act("refund", "r1", "p1", at=NOON + 9)
    assert run(SHOWN, bought, back).interacted["purchase"] == set()
    again = act("purchase", "r1", "p1", at=NOON + 11)
    assert run(SHOWN, bought, back, again).interacted["purchase"] == {"p1"}
    assert fates(run(SHOWN, bought, back)) == [
        ("impression", "used", ""), ("purchase", "used", ""), ("refund", "used", ""),
    ]  # fmt: skip


def test_a_refund_of_what_was_not_bought_is_unmatched_and_one_after_its_window_is_late():
    bought = act("purchase", "r1", "p1")
    assert ("refund", "unmatched", "no_purchase") in fates(run(SHOWN, bought, act("refund", "r1", "p2")))
    assert ("refund", "unmatched", "no_purchase") in fates(run(SHOWN, bought, act("refund", "r1", "p1", at=NOON)))
    late = run(SHOWN, bought, act("refund", "r1", "p1", at=NOON + 720 * HOUR + 1))
    assert ("refund", "late", "late") in fates(late)
    assert late.interacted["purchase"] == {"p1"}


def test_the_order_of_reading_does_not_matter():
    events = [
        SHOWN,
        act("click", "r1", "p1"),
        act("click", "r1", "p1", at=NOON + 2 * HOUR),
        act("purchase", "r1", "p2"),
        act("refund", "r1", "p2", at=NOON + 5000),
    ]
    results = [run(*order) for order in itertools.permutations(events)]
    assert all(result == results[0] for result in results)


EVENTS = st.one_of(
    st.builds(
        lambda items, at, event_id: impression("r1", "q", *items, at=NOON + at, event_id=event_id),
        st.lists(st.sampled_from(["p1", "p2", "p3", "p4"]), min_size=1, max_size=5),
        st.integers(-HOUR, 3 * HOUR),
        st.sampled_from("abc"),
    ),
    st.builds(
        lambda kind, item, at, event_id: act(kind, "r1", item, at=NOON + at, event_id=event_id),
        st.sampled_from(["click", "add_to_cart", "purchase", "refund"]),
        st.sampled_from(["p1", "p2", "p3", "p4", "p5"]),
        st.integers(-HOUR, 30 * HOUR),
        st.sampled_from("abcdefgh"),
    ),
)


@given(st.lists(EVENTS, min_size=1, max_size=12), st.sampled_from(["", "p1"]))
def test_every_event_has_exactly_one_fate(events, unusable):
    result = run(*events, unusable=unusable)
    assert sorted(fate.logged.line for fate in result.fates) == sorted(map(orjson.dumps, events))
