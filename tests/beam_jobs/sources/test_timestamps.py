"""Timestamps: the plausible ones, and others named by the unit that they look like."""

import orjson
import pytest

from beam_jobs.sources.ga4_log import read_ga4
from beam_jobs.sources.native_log import Malformed, read_event
from beam_jobs.sources.products import MalformedProduct, read_product
from beam_jobs.sources.timestamps import BadTimestamp, read_instant, read_timestamp
from features.errors import InputError
from features.spec import spec_from_json
from tests.beam_jobs import ga4_logs
from tests.beam_jobs.datasets import ANY_LOSS, build, write_task
from tests.beam_jobs.log_lines import NOON, act, impression, write_jsonl
from tests.features.specs import DEMO


@pytest.mark.parametrize("raw", [NOON, float(NOON), NOON + 0.75, str(NOON)])
def test_numbers_and_strings_of_digits_are_milliseconds_without_their_fraction(raw):
    assert read_timestamp(raw) == NOON


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (NOON // 1000, "timestamp_in_seconds"),
        (NOON / 1000, "timestamp_in_seconds"),
        (str(NOON // 1000), "timestamp_in_seconds"),
        (NOON * 1000, "timestamp_in_microseconds"),
        (NOON * 10**6, "timestamp_in_nanoseconds"),
        (946_684_799_999, "timestamp_implausible"),  # the last millisecond of 1999
        (4_102_444_800_000, "timestamp_implausible"),  # the first of 2100
        (0, "timestamp_implausible"),
        (-NOON, "timestamp_implausible"),
        (10**40, "timestamp_implausible"),
        (True, "timestamp_invalid"),
        (None, "timestamp_invalid"),
        ("2024-06-10", "timestamp_invalid"),
        ("1" * 20, "timestamp_invalid"),
        (float("nan"), "timestamp_invalid"),
        (float("inf"), "timestamp_invalid"),
    ],
)
def test_another_unit_and_another_century_are_refused_by_name(raw, reason):
    found = read_timestamp(raw)
    assert isinstance(found, BadTimestamp)
    assert found.reason == reason
    assert "expected milliseconds since 1970" in found.detail


def test_iso_8601_is_held_to_the_same_years():
    assert [read_instant(raw) for raw in ("2000-01-01", "2099-12-31T23:59:59.999Z")] == [
        946_684_800_000, 4_102_444_799_999,
    ]  # fmt: skip
    assert isinstance(read_instant("1999-12-31T23:59:59Z"), BadTimestamp)


def test_ga4_expects_microseconds_and_products_the_same_as_events():
    row = {**ga4_logs.row("select_item", "p1"), "event_timestamp": NOON}
    (found,) = read_ga4(orjson.dumps(row))
    assert isinstance(found, Malformed)
    assert found.reason == "timestamp_in_milliseconds"
    product = read_product(orjson.dumps({"item_id": "p", "timestamp_ms": NOON // 1000}), spec_from_json(DEMO))
    assert isinstance(product, MalformedProduct)
    assert product.reason == "product_timestamp_in_seconds"


def test_a_fractional_timestamp_is_a_number_as_the_guide_says():
    found = read_event(orjson.dumps(act("click", "r1", "p1", at=NOON + 0.5)))  # type: ignore[arg-type]
    assert not isinstance(found, Malformed)
    assert found.timestamp_ms == NOON


SECONDS = [impression(f"r{n}", f"sofa {n}", "p1", "p2", at=1_741_600_017 + n) for n in range(30)]
SAYS = "30 impressions: timestamp_ms 1741600000 looks like seconds, expected milliseconds since 1970"


def test_a_log_in_seconds_is_refused_saying_so(tmp_path):
    logs = write_jsonl(tmp_path / "events.jsonl", *SECONDS)
    with pytest.raises(InputError, match=f"refused: timestamp_in_seconds 30.*; {SAYS}"):
        build(write_task(tmp_path), logs, tmp_path / "dataset")


def test_the_summary_says_what_is_wrong_with_timestamps(tmp_path, capsys):
    logs = write_jsonl(tmp_path / "events.jsonl", *SECONDS, impression("r", "lamp", "p1", "p2"))
    config = write_task(tmp_path, dataset={"limits": ANY_LOSS})
    manifest = build(config, logs, tmp_path / "dataset")
    assert manifest.refused == {"timestamp_in_seconds": 30}
    assert SAYS in manifest.warnings
    assert f"warning: {SAYS}" in capsys.readouterr().out
