"""Manifests: what a directory says of itself, and when it is not believed."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import InputError
from features.manifest import (
    FORMAT,
    DatasetManifest,
    EventCounts,
    FeatureStatistics,
    Manifest,
    ModelManifest,
    SplitStatistics,
    VocabularyManifest,
    parse_manifest,
    stage_key,
)
from tests.features.specs import every_type

SPEC = every_type()


def dataset() -> DatasetManifest:
    statistics = FeatureStatistics(count=3, missing=1, minimum=0.0, maximum=2.0, mean=1.0, deviation=0.5)
    return DatasetManifest(
        stage_key="k",
        features=SPEC.to_json(),
        fingerprint=SPEC.fingerprint,
        splits={"train": SplitStatistics(groups=1, groups_with_label=1, items=3, features={"price": statistics})},
        events={"click": EventCounts(read=5, used=3, duplicate=1, late=1)},
        refused={"not JSON": 2},
        warnings=("brand nearly equals the label",),
    )


def model() -> ModelManifest:
    return ModelManifest(
        stage_key="k",
        name="shop",
        features=SPEC.to_json(),
        fingerprint=SPEC.fingerprint,
        files={"saved_model.pb": "0" * 64},
        tokeniser="",
        limits={"max_item_tokens": 40},
        ranges={"price": (0.0, 9.5)},
        score_histogram={"edges": [0.0, 1.0], "counts": [7]},
        metrics={"ndcg@8": 0.5},
        parents={"dataset": "k"},
        warm_up=({"query": "sofa", "items": ["Blue sofa"]},),
    )


@pytest.mark.parametrize(
    "manifest",
    [dataset(), model(), VocabularyManifest(stage_key="k", fingerprint="f", pieces=9, sha256="0" * 64)],
    ids=lambda manifest: manifest.kind,
)
def test_a_manifest_reads_back_as_it_was_written(manifest: Manifest):
    content = manifest.to_bytes()
    assert content.endswith(b"}\n")
    assert json.loads(content)["format"] == FORMAT
    assert parse_manifest(content, "manifest.json", type(manifest)) == manifest


def test_its_spec_is_the_spec_that_was_written():
    for manifest in (dataset(), model()):
        assert manifest.spec.fingerprint == manifest.fingerprint == SPEC.fingerprint
        assert SPEC.first_difference(manifest.spec) is None


def test_it_says_when_it_was_made_in_utc():
    assert dataset().created.endswith("+00:00")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", r"x/manifest\.json is no dataset manifest: content: Invalid JSON"),
        (b"{", r"Invalid JSON"),
        (b"[]", r"is no dataset manifest"),
        (b"\xff\xfe", r"is no dataset manifest"),
        (
            b'{"kind": "dataset"}',
            r"is no dataset manifest: stage_key: Field required; give a complete dataset directory",
        ),
        (dataset().model_copy(update={"format": 2}).to_bytes(), r"has kind 'dataset', format 2, expected .* format 1"),
        (dataset().model_copy(update={"kind": "run"}).to_bytes(), r"has kind 'run', format 1, expected kind 'dataset'"),
        (model().to_bytes(), r"is no dataset manifest"),
        (dataset().to_bytes().replace(b'"items": 3', b'"items": "many"'), r"splits\.train\.items"),
        (dataset().to_bytes().replace(b'"items"', b'"itmes"'), r"splits\.train\.\w+"),
    ],
)
def test_a_manifest_that_is_none_is_refused_with_the_remedy(content: bytes, complaint: str):
    with pytest.raises(InputError, match=complaint):
        parse_manifest(content, "x/manifest.json", DatasetManifest)


def test_events_reconcile_when_every_one_has_a_fate():
    # 10 = 4 used + 2 duplicate + 1 late + 1 unmatched + 1 malformed + 1 capped
    counts = EventCounts(read=10, used=4, duplicate=2, late=1, unmatched=1, malformed=1, capped=1)
    assert counts.reconciles
    assert EventCounts().reconciles


@pytest.mark.parametrize("fate", ["used", "duplicate", "late", "unmatched", "malformed", "capped"])
def test_an_event_with_two_fates_or_none_does_not_reconcile(fate: str):
    assert not EventCounts(read=1, **{fate: 2}).reconciles
    assert EventCounts(read=2, **{fate: 2}).reconciles
    assert not EventCounts(read=3, **{fate: 2}).reconciles


def test_a_stage_key_is_the_hash_of_its_sorted_parts():
    expected = hashlib.sha256(b'{"config": {"a": 1, "b": 2}, "input": "k"}').hexdigest()
    assert stage_key(input="k", config={"b": 2, "a": 1}) == expected


PARTS = st.dictionaries(
    st.from_regex(r"[a-z]{1,3}", fullmatch=True), st.integers() | st.text() | st.lists(st.integers()), max_size=4
)


@given(PARTS, PARTS)
def test_stage_keys_are_equal_exactly_when_the_parts_are(one: dict[str, Any], other: dict[str, Any]):
    assert (stage_key(**one) == stage_key(**other)) == (one == other)
