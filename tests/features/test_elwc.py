"""Query groups as bytes: what goes in comes out, and the serving view cannot carry what it must not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.elwc import GroupEncoder, QueryGroup, decode_group, encode_group, features_in
from features.spec import spec_from_json
from protos import elwc_pb2
from tests.features.specs import DEMO, every_type, groups, sections, spec_with

GROUP = QueryGroup(
    {"query": "sofá", "shop": "app"},
    [
        {
            "title": "Blue sofa",
            "price": 99.5,
            "picture": (0.25, -1.0, 0.0),
            "stock": 3,
            "new": True,
            "brand": "norr",
            "item_id": "p1",
            "position": 0,
            "click": True,
            "purchase": False,
        }
    ],
)


@given(st.data())
def test_any_group_of_any_spec_comes_back_as_it_went_in(data: st.DataObject):
    spec = spec_from_json(data.draw(sections()))
    group = data.draw(groups(spec))
    back = decode_group(encode_group(group, spec, "training"), spec)
    assert back.context == group.context
    assert list(back.items) == list(group.items)


@given(st.data())
def test_the_bytes_are_as_few_as_protobuf_writes(data: st.DataObject):
    spec = spec_from_json(data.draw(sections()))
    group = data.draw(groups(spec))
    for view in ("training", "serving"):
        written = encode_group(group, spec, view)
        again = elwc_pb2.ExampleListWithContext.FromString(written).SerializeToString(deterministic=True)
        assert sorted(again) == sorted(written)  # where one key begins another, protobuf has them the other way round


def test_the_demo_s_records_are_those_that_protobuf_writes():
    item = {"item_id": "p1", "title": "Blue sofa", "position": 300, "click": True, "add_to_cart": 0, "purchase": False}
    group = QueryGroup({"request_id": "r1", "query": "sofá"}, [item, {**item, "title": "é" * 9000}])
    for view in ("training", "serving"):
        written = encode_group(group, spec_from_json(DEMO), view)
        assert elwc_pb2.ExampleListWithContext.FromString(written).SerializeToString(deterministic=True) == written


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 65_536])
@pytest.mark.parametrize("stock", [0, 127, 128, -1, 2**63 - 1, -(2**63)])
def test_texts_and_numbers_of_any_length_come_back(length: int, stock: int):
    spec = every_type()
    group = QueryGroup({**GROUP.context, "query": "q" * length}, [{**GROUP.items[0], "title": "é", "stock": stock}] * 3)
    encoder, columns = GroupEncoder(spec, "training"), group.columns(group.items[0])
    first, again = encoder.encode([columns, columns])[0]
    assert first == again == encoder.encode([columns])[0][0]  # from values that it keeps, too
    assert decode_group(first, spec) == group


@given(st.data())
def test_groups_and_views_encoded_together_are_those_encoded_alone(data: st.DataObject):
    spec = spec_from_json(data.draw(sections()))
    several = [data.draw(groups(spec)) for _ in range(data.draw(st.integers(0, 3)))]
    names = [feature.name for feature in spec.at("item")]
    together = GroupEncoder(spec, "training", "serving").encode([group.columns(names) for group in several])
    assert together == [[encode_group(group, spec, view) for group in several] for view in ("training", "serving")]


def test_an_encoder_keeps_few_values(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("features.elwc._MAX_CACHED_VALUES", 10)
    spec = spec_with(query={"type": "text", "level": "context"}, brand={"type": "categorical", "level": "item"})
    encoder = GroupEncoder(spec, "serving")
    for number in range(100):
        group = QueryGroup({"query": f"q{number}"}, [{"brand": f"b{number % 7}"}, {"brand": f"b{number}"}])
        ((record,),) = encoder.encode([group.columns(["brand"])])
        assert decode_group(record, spec) == group
        assert max(map(len, (*encoder._context.values(), *encoder._items.values()))) <= 10
    long = QueryGroup({"query": "q" * 600}, [])
    encoder.encode([long.columns(["brand"])])
    assert "q" * 600 not in encoder._context["query"]


@given(st.data())
def test_the_types_come_back_too(data: st.DataObject):
    # True == 1 == 1.0 in Python: equality alone would let a bool come back as an int
    spec = every_type()
    group = data.draw(groups(spec))
    back = decode_group(encode_group(group, spec, "training"), spec)
    for item, original in zip(back.items, group.items, strict=True):
        assert {name: type(value) for name, value in item.items()} == {
            name: type(value) for name, value in original.items()
        }


@given(st.data())
def test_the_serving_view_holds_the_regular_features_and_nothing_else(data: st.DataObject):
    spec = spec_from_json(data.draw(sections()))
    group = data.draw(groups(spec))
    back = decode_group(encode_group(group, spec, "serving"), spec)
    regular = {feature.name for feature in spec.regular}
    assert set(back.context) == {name for name in group.context if name in regular}
    assert all(set(item) == {name for name in item if name in regular} for item in back.items)
    assert len(back.items) == len(group.items)


def test_no_privileged_name_or_value_is_in_the_serving_bytes():
    spec = spec_with(
        query={"type": "text", "level": "context"}, secret={"type": "text", "level": "item", "role": "privileged"}
    )
    group = QueryGroup({"query": "sofa"}, [{"secret": "smuggled", "purchase": True}])
    assert b"smuggled" in encode_group(group, spec, "training")
    serving = encode_group(group, spec, "serving")
    assert b"smuggled" not in serving
    assert b"secret" not in serving
    assert b"purchase" not in serving


def test_the_serving_bytes_do_not_depend_on_behaviour():
    spec = every_type()
    changed = {**GROUP.items[0], "position": 7, "click": False, "purchase": True, "item_id": "p2"}
    other = QueryGroup(GROUP.context, [changed])
    assert encode_group(GROUP, spec, "serving") == encode_group(other, spec, "serving")
    assert encode_group(GROUP, spec, "training") != encode_group(other, spec, "training")


def test_the_order_of_the_items_is_kept():
    spec = spec_with(query={"type": "text", "level": "context"}, rank={"type": "int", "level": "item"})
    group = QueryGroup({"query": "q"}, [{"rank": rank, "purchase": False} for rank in (3, 1, 2)])
    assert [item["rank"] for item in decode_group(encode_group(group, spec, "serving"), spec).items] == [3, 1, 2]


def test_the_order_of_the_keys_does_not_change_the_bytes():
    spec = every_type()
    turned = QueryGroup(dict(reversed(GROUP.context.items())), [dict(reversed(GROUP.items[0].items()))])
    assert encode_group(turned, spec, "training") == encode_group(GROUP, spec, "training")


def test_a_group_without_items_keeps_its_context():
    spec = every_type()
    back = decode_group(encode_group(QueryGroup(GROUP.context, []), spec, "training"), spec)
    assert back == QueryGroup(GROUP.context, [])


def test_a_value_the_view_needs_and_the_group_lacks_is_an_error():
    with pytest.raises(KeyError, match="query"):
        encode_group(QueryGroup({}, []), every_type(), "serving")


def test_values_that_the_spec_does_not_know_are_left_out():
    spec = every_type()
    stranger = QueryGroup({**GROUP.context, "user_id": "u1"}, [{**GROUP.items[0], "user_id": "u1"}])
    assert encode_group(stranger, spec, "training") == encode_group(GROUP, spec, "training")


def test_views_list_their_features_in_the_spec_s_order():
    spec = every_type()
    assert features_in(spec, "training") == tuple(spec)
    assert features_in(spec, "serving") == spec.regular


def test_tensorflow_reads_the_bytes_as_its_own_message():
    # field numbers are TensorFlow's: its classes must find every value where they expect it
    from tensorflow_serving.apis import input_pb2

    message = input_pb2.ExampleListWithContext.FromString(encode_group(GROUP, every_type(), "training"))
    assert message.context.features.feature["query"].bytes_list.value[:] == ["sofá".encode()]
    item = message.examples[0].features.feature
    assert item["price"].float_list.value[:] == [99.5]
    assert item["picture"].float_list.value[:] == [0.25, -1.0, 0.0]
    assert item["stock"].int64_list.value[:] == [3]
    assert item["new"].int64_list.value[:] == [1]
    assert item["purchase"].int64_list.value[:] == [0]
    assert len(message.examples) == 1


def _bytes_with(fill: Any) -> bytes:
    message = elwc_pb2.ExampleListWithContext()
    fill(message.context.features.feature)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("serialised", "complaint"),
    [
        (b"\xff\xff\xff", "not an ExampleListWithContext"),
        (_bytes_with(lambda f: f["stranger"].int64_list.value.append(1)), "'stranger' is not in the spec"),
        (_bytes_with(lambda f: f["query"].int64_list.value.append(1)), "'query' holds no text"),
        (_bytes_with(lambda f: f["query"].SetInParent()), "'query' holds no text"),
        (_bytes_with(lambda f: f["query"].bytes_list.value.append(b"\xff")), "codec"),
    ],
    ids=["no message", "unknown feature", "other type", "no value", "no UTF-8"],
)
def test_bytes_that_are_no_group_of_the_spec_are_refused(serialised: bytes, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        decode_group(serialised, every_type())


def test_a_vector_of_another_length_is_refused():
    serialised = _bytes_with(lambda f: f["vector"].float_list.value.extend([1.0, 2.0]))
    spec = spec_with(vector={"type": "float", "level": "context", "length": 3})
    with pytest.raises(ValueError, match="'vector' holds 2 numbers, expected 3"):
        decode_group(serialised, spec)
