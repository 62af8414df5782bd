"""What is left out because there is too much of it, counted: bots and the groups of hot queries."""

from pathlib import Path
from typing import Any

import pytest

from tests.beam_jobs.datasets import build, groups, manifest_of, read_dead_letters, write_task
from tests.beam_jobs.log_lines import HOUR, NOON, act, impression, write_jsonl


def searches(user: str, hour: int, count: int, query: str = "sofa") -> list[Any]:
    """`count` requests of a user in one hour, each with a click."""
    rows: list[Any] = []
    for n in range(count):
        request, at = f"{user}-{hour}-{n}", NOON - NOON % HOUR + hour * HOUR + n
        rows += [impression(request, query, "p1", "p2", at=at, user=user), act("click", request, "p1", at=at + 1)]
    return rows


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """At most 5 requests an hour and 7 groups a query."""
    folder = tmp_path_factory.mktemp("capped")
    rows = [
        *searches("robot", 0, 6), *searches("robot", 3, 1, "lamp"),  # its calm hour goes too
        *searches("busy", 0, 5), *searches("busy", 1, 5),            # never more than 5 in an hour
        *searches("calm", 2, 1, "lamp"),
        *searches("", 0, 2, "rug"),                                  # nobody: not judged
        *searches("twice", 5, 5, "rug"), *searches("twice", 5, 5, "rug"),  # the same 5 requests, logged twice
    ]  # fmt: skip
    options = {"max_requests_per_hour": 5, "max_groups_per_query": 7, "min_distinct_users": 1}
    config = write_task(folder, dataset={**options, "limits": {"capped": 1}})
    build(config, write_jsonl(folder / "events.jsonl", *rows), folder / "dataset")
    return folder / "dataset"


def test_a_user_with_too_many_requests_in_an_hour_is_left_out_whole(capped):
    requests = set(groups(capped))
    assert not [name for name in requests if name.startswith("robot")]
    assert {name for name in requests if not name.startswith("busy")} == {
        "calm-2-0", "-0-0", "-0-1", *(f"twice-5-{n}" for n in range(5)),
    }  # fmt: skip


def test_of_a_hot_query_only_so_many_groups_stay(capped):
    assert sum(name.startswith("busy") for name in groups(capped)) == 7


def test_what_was_capped_is_counted_and_reconciles(capped):
    manifest = manifest_of(capped)
    # bots: 7 impressions and 7 clicks; of the hot query's 10 groups 3 go, with an impression and a click each
    assert manifest.refused == {"bot": 14, "hot_query": 6}
    assert manifest.events["impression"].model_dump() == {
        "read": 30, "used": 15, "duplicate": 5, "late": 0, "unmatched": 0, "malformed": 0, "capped": 10,
    }  # fmt: skip
    assert manifest.events["click"].capped == 10
    assert sum(split.groups for split in manifest.splits.values()) == 15
    assert {warning for warning in manifest.warnings if "left out" in warning} == {
        "3 groups of queries with more than 7 groups were left out",
        "14 events of users with more than 5 requests in an hour were left out",
    }


def test_what_is_capped_wholesale_leaves_no_dead_letters(capped):
    assert read_dead_letters(capped) == []


def test_the_groups_that_stay_are_the_same_in_any_order_of_reading(capped, tmp_path):
    rows = searches("busy", 1, 5) + searches("busy", 0, 5)
    config = write_task(tmp_path, dataset={"max_groups_per_query": 7, "limits": {"capped": 1}})
    build(config, write_jsonl(tmp_path / "events.jsonl", *rows), tmp_path / "dataset")
    assert set(groups(tmp_path / "dataset")) == {name for name in groups(capped) if name.startswith("busy")}
