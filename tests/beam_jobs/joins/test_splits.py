"""Which groups a dataset takes, and into which split: by query, by time, by both, by locale."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from beam_jobs.joins.dataset_options import DatasetOptions
from features.errors import InputError
from features.task import parse
from tests.beam_jobs.log_lines import act, impression
from tests.beam_jobs.without_runner import Joined, join


def at(day: int, hour: int = 12) -> int:
    return int(datetime(2025, 3, day, hour, tzinfo=UTC).timestamp() * 1000)


def searches(days: range, queries: int = 30) -> list[bytes]:
    """Every query once a day at noon, with a click."""
    rows: list[Any] = []
    for day in days:
        for n in range(queries):
            rows.append(impression(f"r{day}-{n}", f"query {n}", "p1", "p2", at=at(day)))
            rows.append(act("click", f"r{day}-{n}", "p1", at=at(day) + 1))
    return [orjson.dumps(row) for row in rows]


def days_of(joined: Joined, split: str) -> set[int]:
    return {
        int(str(built.group.context["request_id"]).split("-")[0][1:]) for built in joined.groups if built.split == split
    }


def queries_of(joined: Joined, split: str) -> set[str]:
    return {built.query for built in joined.groups if built.split == split}


def test_a_split_by_time_gives_each_split_its_days_and_any_query():
    splits = {"by": "time", "valid_from": "2025-03-05", "test_from": "2025-03-07"}
    joined = join(searches(range(3, 9)), splits=splits)
    assert [days_of(joined, split) for split in ("train", "valid", "test")] == [{3, 4}, {5, 6}, {7, 8}]
    assert queries_of(joined, "train") == queries_of(joined, "test") == {f"query {n}" for n in range(30)}


def test_midnight_in_utc_is_the_later_split():
    splits = {"by": "time", "valid_from": "2025-03-05", "test_from": "2025-03-07"}
    rows = [impression("r1", "a", "p1", "p2", at=at(7, 0) - 1), impression("r2", "b", "p1", "p2", at=at(7, 0))]
    joined = join(map(orjson.dumps, rows), splits=splits)
    assert {built.query: built.split for built in joined.groups} == {"a": "valid", "b": "test"}


def test_a_split_by_both_tests_later_on_unseen_queries_and_counts_what_it_leaves_out():
    splits = {"by": "query_and_time", "test_from": "2025-03-07", "train": 0.5, "valid": 0.2, "test": 0.3}
    lines = searches(range(3, 9))
    joined, by_query = join(lines, splits=splits), join(lines, splits={"train": 0.5, "valid": 0.2, "test": 0.3})
    assert days_of(joined, "train") == days_of(joined, "valid") == {3, 4, 5, 6}
    assert days_of(joined, "test") == {7, 8}
    for split in ("train", "valid", "test"):
        assert queries_of(joined, split) == queries_of(by_query, split)
    # of the 30 queries, those of train and valid lose days 7 and 8, those of test days 3 to 6; two events a group
    unseen = len(queries_of(by_query, "test"))
    assert joined.named("skipped") == {"outside_splits": 2 * (2 * (30 - unseen) + 4 * unseen)}
    assert joined.events["click"].read == joined.events["click"].used == len(joined.groups)


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        ({"by": "time", "test_from": "2025-03-07"}, "takes valid_from and test_from"),
        ({"by": "query", "test_from": "2025-03-07"}, "takes no date"),
        ({"by": "query_and_time"}, "takes test_from"),
        ({"by": "time", "valid_from": "2025-03-08", "test_from": "2025-03-07"}, "is not before test_from"),
        ({"by": "user"}, "Input should be 'query', 'time' or 'query_and_time'"),
    ],
)
def test_splits_without_the_dates_that_they_need_are_refused(splits, expected):
    with pytest.raises(InputError, match=expected):
        parse({"splits": splits}, "dataset", DatasetOptions)


def test_a_locale_makes_a_dataset_of_its_impressions_alone():
    rows = [
        impression("r1", "sofa", "p1", "p2", locale="en-GB"), act("click", "r1", "p1"),
        impression("r2", "sessel", "p1", "p2", locale="de_DE"), act("purchase", "r2", "p2"), act("click", "r2", "p9"),
        impression("r3", "lamp", "p1", "p2"),
    ]  # fmt: skip
    lines = [orjson.dumps(row) for row in rows]
    german = join(lines, locale="de-de")
    assert [built.query for built in german.groups] == ["sessel"]
    assert german.named("skipped") == {"other_locale": 3}
    assert {kind: counts.read for kind, counts in german.events.items() if counts.read} == {
        "impression": 1, "click": 1, "purchase": 1,
    }  # fmt: skip
    every = join(lines)
    assert len(every.groups) == 3
    assert every.named("locale") == {"en-gb": 1, "de-de": 1}
