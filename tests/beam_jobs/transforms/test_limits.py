"""Jobs that lose too much, or have nothing to rank, fail: the reasons stay, and the former dataset."""

import gzip
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from beam_jobs.joins.dataset_options import DatasetOptions, Limits
from beam_jobs.sinks.dataset_manifest import check_limits, check_unclicked_items, event_counts, job_warnings
from features.errors import InputError
from tests.beam_jobs.datasets import build, manifest_of, write_task
from tests.beam_jobs.log_lines import act, impression, write_jsonl
from tests.published import version_of


def tally(**counts: int) -> Counter[str]:
    """late_click=2 -> {'late/click': 2}; reads are what the fates add up to."""
    found: Counter[str] = Counter()
    for name, count in counts.items():
        fate, _, kind = name.partition("_")
        found[f"{fate}/{kind}"] += count
        if fate != "skipped":
            found[f"read/{kind}"] += count
    return found


def refusal(limits: Limits, counted: Counter[str]) -> str:
    with pytest.raises(InputError) as raised:
        check_limits(limits, event_counts(counted), counted)
    return str(raised.value)


def test_more_than_one_unreadable_line_in_a_hundred_is_too_many():
    counted = tally(used_impression=989, malformed_unknown=10, malformed_click=1)
    counted["unreadable"] = 11
    assert "11 of 1000 lines cannot be read (1.1%), above dataset.limits.malformed 0.01" in refusal(Limits(), counted)
    counted["skipped/bulk_action"] = 100  # lines as well: 11 of 1100 are just 1%
    check_limits(Limits(), event_counts(counted), counted)


def test_impressions_that_were_read_and_not_usable_are_no_unreadable_lines():
    counted = tally(used_impression=5, malformed_impression=95)
    check_limits(Limits(), event_counts(counted), counted)


@pytest.mark.parametrize("fate", ["late", "unmatched", "capped"])
def test_late_unmatched_and_capped_interactions_have_limits_of_their_own(fate):
    counted = tally(used_impression=1000, used_click=4, used_purchase=3, **{f"{fate}_click": 2, f"{fate}_refund": 1})
    check_limits(Limits(**{fate: 0.3}), event_counts(counted), counted)  # 3 of 10
    assert f"(30.0%), above dataset.limits.{fate} 0.29" in refusal(Limits(**{fate: 0.29}), counted)


def test_interactions_that_mostly_match_no_impression_are_refused_unless_told_otherwise():
    counted = tally(used_impression=1000, used_click=49, unmatched_click=51)
    assert "51 of 100 interactions match no impression" in refusal(Limits(), counted)


def test_logs_whose_every_item_was_acted_on_hold_nothing_to_rank():
    counted = Counter({"noted/items": 40, "noted/items_acted_on": 40})
    with pytest.raises(
        InputError, match=r"all 40 items shown .* nothing to rank .* Log every item that a request showed"
    ):
        check_unclicked_items(counted)
    check_unclicked_items(Counter({"noted/items": 40, "noted/items_acted_on": 39}))


def test_counts_that_do_not_reconcile_are_a_fault_of_the_job():
    with pytest.raises(RuntimeError, match="click events do not reconcile"):
        event_counts(Counter({"read/click": 3, "used/click": 2}))


def test_several_locales_in_one_dataset_are_a_warning():
    counted = Counter({"locale/en-gb": 5, "locale/de-de": 2})
    (warning,) = job_warnings(counted, DatasetOptions())
    assert warning.startswith("groups of 2 locales (en-gb 5, de-de 2) are in one dataset")
    assert not list(job_warnings(counted, DatasetOptions(locale="de-de")))


# --- the whole job


def shop(folder: Path, *rows: Any) -> tuple[Path, Path, Path]:
    return write_task(folder), write_jsonl(folder / "events.jsonl", *rows), folder / "dataset"


@pytest.mark.slow
def test_a_job_beyond_a_limit_leaves_its_reasons_and_the_former_dataset(tmp_path):
    sound = [impression(f"r{n}", f"query {n}", "p1", "p2") for n in range(5)]
    config, logs, output = shop(tmp_path, *sound)
    former = build(config, logs, output)
    shop(tmp_path, *sound, b'{"user_id": "user-one", cut')
    with pytest.raises(InputError, match=r"1 of 6 lines cannot be read .* Nothing was written but .*dataset\.refused"):
        build(config, logs, output)
    assert manifest_of(output) == former
    refused = tmp_path / "dataset.refused"
    (letters,) = version_of(refused).glob("dead_letters/*.jsonl.gz")
    (letter,) = [orjson.loads(line) for line in gzip.decompress(letters.read_bytes()).splitlines()]
    assert letter["reason"] == "not_json"
    assert "user-one" not in str(letter)
    assert orjson.loads((version_of(refused) / "counts.json").read_bytes())["refused/not_json"] == 1
    assert [stat.S_IMODE(path.stat().st_mode) for path in (refused, letters)] == [0o700, 0o600]
    shop(tmp_path, *sound, impression("r9", "lamp", "p1", "p2"))
    build(config, logs, output)
    assert not refused.exists()


def test_logs_of_clicked_items_alone_are_refused_with_an_explanation(tmp_path):
    rows = [impression("r1", "sofa", "p1", "p2"), act("click", "r1", "p1"), act("purchase", "r1", "p2")]
    config, logs, output = shop(tmp_path, *rows)
    with pytest.raises(InputError, match="such logs hold only what shoppers acted on"):
        build(config, logs, output)
    assert not output.exists()
