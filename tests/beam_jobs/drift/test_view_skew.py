"""Differences between the training and the serving view are detected in any order of groups."""

import random

from beam_jobs.drift.view_skew import WHOLE_GROUP, ViewSkew
from features.elwc import QueryGroup, encode_group
from tests.beam_jobs.drift.samples import draw, spec

GROUPS = draw(1, 40)


def skew_of(training: list[QueryGroup], serving: list[QueryGroup]) -> ViewSkew:
    skew = ViewSkew(spec())
    for group in training:
        skew.add("training", encode_group(group, spec(), "training"))
    for group in serving:
        skew.add("serving", encode_group(group, spec(), "serving"))
    return skew


def changed(group: QueryGroup, name: str, value: object) -> QueryGroup:
    """The group with one value of one item, or of the context, changed."""
    if name in group.context:
        return QueryGroup({**group.context, name: value}, group.items)
    return QueryGroup(group.context, [{**group.items[0], name: value}, *group.items[1:]])


def test_the_same_groups_in_any_order_do_not_differ():
    shuffled = random.Random(1).sample(GROUPS, len(GROUPS))
    found = skew_of(GROUPS, shuffled).to_json()
    assert not any(found["differing"].values())
    assert found["leaked"] == {}
    assert set(found["differing"]) == {
        "query",
        "device",
        "title",
        "price",
        "picture",
        "stock",
        "new",
        "brand",
        WHOLE_GROUP,
    }


def test_a_changed_value_differs_in_its_feature_and_in_whole_groups():
    for name, value in (("price", 1e6), ("query", "other"), ("new", None), ("picture", (1.0, 2.0, 3.0))):
        serving = [changed(group, name, not group.items[0][name] if value is None else value) for group in GROUPS[:3]]
        found = skew_of(GROUPS, serving + GROUPS[3:]).to_json()["differing"]
        assert found[WHOLE_GROUP] == 3
        assert {feature for feature, count in found.items() if count} == {name, WHOLE_GROUP}


def test_values_swapped_between_groups_differ_only_in_whole_groups():
    one, other, *rest = GROUPS
    swapped = [changed(one, "query", other.context["query"]), changed(other, "query", one.context["query"])]
    found = skew_of(GROUPS, swapped + rest).to_json()["differing"]
    assert {feature: count for feature, count in found.items() if count} == {WHOLE_GROUP: 2}


def test_items_in_another_order_differ():
    group = next(group for group in GROUPS if group.items[0]["title"] != group.items[1]["title"])
    turned = QueryGroup(group.context, [*group.items[::-1]])
    assert skew_of([group], [turned]).to_json()["differing"]["title"] == 1


def test_an_extra_group_of_either_view_is_counted():
    assert skew_of(GROUPS, GROUPS[1:]).to_json()["differing"][WHOLE_GROUP] == 1
    assert skew_of(GROUPS[1:], GROUPS).to_json()["differing"][WHOLE_GROUP] == 1


def test_a_privileged_feature_in_the_serving_view_is_leaked():
    skew = ViewSkew(spec())
    skew.add("serving", encode_group(GROUPS[0], spec(), "training"))
    assert skew.to_json()["leaked"] == dict.fromkeys(
        sorted(["request_id", "item_id", "position", "click", "add_to_cart", "purchase"]), 1
    )


def test_a_record_that_is_not_a_group_is_counted():
    skew = ViewSkew(spec())
    skew.add("serving", b"\xff\xff")
    assert skew.to_json()["unreadable"] == 1


def test_merged_parts_equal_the_whole():
    half = skew_of(GROUPS[:20], [changed(GROUPS[0], "price", 1e6)])
    rest = skew_of(GROUPS[20:], GROUPS[1:])
    assert (
        half.merge(rest).to_json()["differing"]
        == skew_of(GROUPS, [changed(GROUPS[0], "price", 1e6), *GROUPS[1:]]).to_json()["differing"]
    )
