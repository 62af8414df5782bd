"""Attempts to bring a privileged feature to the model: in a request, and in a model that would take one."""

from pathlib import Path
from typing import Any

import pytest

from features.errors import InputError
from tests.serving.processes import GatewayProcess

ITEM = {"title": "oak table"}
SMUGGLED = {
    "in an item": {"query": "sofa", "items": [{**ITEM, "click": True}]},
    "in the last of many items": {"query": "sofa", "items": [ITEM] * 999 + [{**ITEM, "position": 0}]},
    "at the top": {"query": "sofa", "items": [ITEM], "click": [1]},
    "as null": {"query": "sofa", "items": [{**ITEM, "add_to_cart": None}]},
    "in capitals": {"query": "sofa", "items": [{**ITEM, "CLICK": 1}]},
    "with a hyphen": {"query": "sofa", "items": [{**ITEM, "Add-To-Cart": 1}]},
    "in camel case": {"query": "sofa", "items": [{**ITEM, "addToCart": 1}]},
    "with spaces": {"query": "sofa", "items": [{**ITEM, " click ": 1}]},
    "in full width": {"query": "sofa", "items": [{**ITEM, "ｃｌｉｃｋ": 1}]},
    "with an accent": {"query": "sofa", "items": [{**ITEM, "clíck": 1}]},
    "before an unknown field": {"query": "sofa", "items": [{**ITEM, "click": 1, "unknown": 1}]},
    "the label": {"query": "sofa", "items": [{**ITEM, "purchase": 1}]},
}
# refused at a field that stands before it or around it, which is as far as a body is read
BEHIND_ANOTHER_FAULT = {
    "in an object of its own": ({"query": "sofa", "items": [{**ITEM, "features": {"click": 1}}]}, "#/items/0/features"),
    "deep inside": ({"query": "sofa", "items": [{**ITEM, "x": [{"y": {"position": 3}}]}]}, "#/items/0/x"),
    "inside the title": ({"query": "sofa", "items": [{"title": {"text": "oak", "click": 1}}]}, "#/items/0/title"),
    "inside the query": ({"query": {"text": "sofa", "position": 1}, "items": [ITEM]}, "#/query"),
    "behind an unknown field": ({"query": "sofa", "items": [{**ITEM, "u": 1, "click": 1}]}, "#/items/0/u"),
}


@pytest.mark.parametrize("body", SMUGGLED.values(), ids=SMUGGLED)
def test_a_request_that_carries_a_privileged_feature_is_refused(shop: GatewayProcess, body: Any) -> None:
    answer = shop.post(body)
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/privileged-feature"
    assert "the student and /rank may not see it. Remove it from the request" in answer.json()["detail"]


@pytest.mark.parametrize(("body", "pointer"), BEHIND_ANOTHER_FAULT.values(), ids=BEHIND_ANOTHER_FAULT)
def test_one_behind_another_fault_is_refused_with_it(shop: GatewayProcess, body: Any, pointer: str) -> None:
    answer = shop.post(body)
    assert (answer.status_code, answer.json()["pointer"]) == (422, pointer)


def test_the_refusal_names_the_feature_its_place_and_both_remedies(shop: GatewayProcess) -> None:
    problem = shop.post({"query": "sofa", "items": ["oak", {**ITEM, "click": True}]}).json()
    assert problem["pointer"] == "#/items/1/click"
    assert problem["detail"] == (
        "feature 'click' is privileged: the student and /rank may not see it. Remove it from the request, or mark it "
        "`role: regular` in the task file if it truly exists when a query arrives."
    )


def test_what_stands_in_the_address_or_in_headers_does_not_reach_the_model(shop: GatewayProcess) -> None:
    body = {"query": "sofa", "items": ["oak table", "red sofa"]}
    plain = shop.post(body).json()["results"]
    assert shop.post(body, "/v1/rank?click=1&position=0", headers={"click": "1"}).json()["results"] == plain


@pytest.mark.parametrize("name", ["click", "position", "purchase", "request_id", "clicks"])
def test_a_model_with_an_input_that_is_no_regular_feature_is_not_loaded(tmp_path: Path, name: str) -> None:
    import tensorflow as tf

    from tests.serving import exported_models

    module = exported_models.Overlap(exported_models.SHOP)
    surplus = {name: tf.TensorSpec([None, None], tf.int64, name=name)}
    exported_models.export(tmp_path, module=module, signatures=exported_models.signatures_of(module, surplus))
    with pytest.raises(InputError, match=rf"signature 'rank' takes .*'{name}'"):
        exported_models.verify(tmp_path)


def test_a_model_that_reads_a_privileged_feature_from_examples_is_not_loaded(tmp_path: Path) -> None:
    import tensorflow as tf

    from tests.serving import exported_models

    module = exported_models.Overlap(exported_models.SHOP)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serving_default(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(examples, {"click": tf.io.FixedLenFeature([1], tf.int64, default_value=[0])})
        return {"score": tf.cast(parsed["click"], tf.float32)}

    exported_models.export(
        tmp_path, module=module, signatures=exported_models.signatures_of(module) | {"serving_default": serving_default}
    )
    with pytest.raises(InputError, match="reads feature 'click' from examples, whose role is privileged"):
        exported_models.verify(tmp_path)
