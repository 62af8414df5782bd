"""Nightly batches: the days of --date, the files that hold them, purchases that come late, and reruns."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import build_elwc
from beam_jobs.sources.dates import Days, batch_days, start_of
from beam_jobs.sources.inputs import match_daily_files
from features.errors import InputError
from tests.beam_jobs.datasets import ANY_LOSS, build, groups, manifest_of, records, write_task
from tests.beam_jobs.log_lines import act, impression, write_jsonl


def at(day: int, hour: int = 12) -> int:
    return int(datetime(2025, 3, day, hour, tzinfo=UTC).timestamp() * 1000)


def test_a_batch_ends_with_its_date_and_looks_back():
    days = batch_days("2025-03-10", 2)
    assert days.each() == [date(2025, 3, 8), date(2025, 3, 9), date(2025, 3, 10)]
    assert days.span_ms == (at(8, 0), at(11, 0))
    assert days.paths("logs/{date}/*.gz") == [f"logs/2025-03-{day}/*.gz" for day in ("10", "09", "08")]
    assert days.paths("logs/*.gz") == ["logs/*.gz"]
    assert start_of(date(1970, 1, 2)) == 86_400_000


@pytest.mark.parametrize("written", ["yesterday", "2025-02-30", "0001-01-02", "20250310", "2025-W11-1", "2025-W11"])
def test_a_date_that_is_none_is_refused(written):
    with pytest.raises(InputError, match=f"--date is '{written}', expected a day such as 2025-03-10"):
        batch_days(written, 7)


def test_the_last_days_files_must_be_there_and_earlier_ones_that_are_not_are_told(tmp_path):
    for day in (8, 10):
        write_jsonl(tmp_path / f"2025-03-{day:02}.jsonl")
    pattern, days = str(tmp_path / "{date}.jsonl"), Days(date(2025, 3, 8), date(2025, 3, 10))
    found, missing = match_daily_files([pattern], days, "--input")
    assert [Path(entry.path).name for entry in found] == ["2025-03-08.jsonl", "2025-03-10.jsonl"]
    assert missing == [str(tmp_path / "2025-03-09.jsonl")]
    with pytest.raises(InputError, match=r"2025-03-11\.jsonl' matches no file"):
        match_daily_files([pattern], Days(date(2025, 3, 10), date(2025, 3, 11)), "--input")
    with pytest.raises(InputError, match="asks for days: give --date too"):
        match_daily_files([pattern], None, "--input")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Days 8 to 11, a search a day; what was searched on day 8 is bought on day 10. Day 9's file was never written."""
    folder = tmp_path_factory.mktemp("shop")
    rows: dict[int, list[Any]] = {day: [impression(f"r{day}", "sofa", "p1", "p2", at=at(day))] for day in (8, 10, 11)}
    rows[10] += [
        act("purchase", "r8", "p2", at=at(10)),
        act("click", "r11", "p2", at=at(11, 0)),
    ]  # the latter too early
    rows[8].append(impression("r7", "sofa", "p1", "p2", at=at(7, 23)))  # in the file of day 8
    for day, lines in rows.items():
        write_jsonl(folder / "logs" / f"2025-03-{day:02}" / "events.jsonl", *lines)
    write_task(folder, dataset={"look_back_days": 2, "limits": ANY_LOSS, "splits": {"train": 1, "valid": 0, "test": 0}})
    return folder


def batch(shop: Path, day: str) -> Path:
    output = shop / "batches" / "{date}"
    logs = shop / "logs" / "{date}" / "*.jsonl"
    build_elwc.main(["--config", str(shop / "task.yaml"), "--input", str(logs), "--output", str(output), "--date", day])
    return shop / "batches" / day


def bought(dataset: Path) -> dict[str, bool]:
    return {name: any(item["purchase"] for item in group.items) for name, group in groups(dataset).items()}


def test_a_late_purchase_is_in_the_batch_of_the_night_it_came(shop):
    first, third = batch(shop, "2025-03-08"), batch(shop, "2025-03-10")
    assert bought(first) == {"r7": False, "r8": False}
    assert bought(third) == {"r8": True, "r10": False}
    manifest = manifest_of(third)
    assert manifest.skipped == {"outside_dates": 2}  # r7's, and the click that is stamped on day 11
    assert manifest.options["days"] == ["2025-03-08", "2025-03-10"]
    assert any(warning.startswith("no file") and "2025-03-09" in warning for warning in manifest.warnings)


def test_a_batch_run_again_is_up_to_date_and_after_newer_days_the_same(shop, capsys):
    done = batch(shop, "2025-03-10")
    before, made = records(done, "train", "training"), manifest_of(done).created
    write_jsonl(shop / "logs" / "2025-03-12" / "events.jsonl", impression("r12", "sofa", "p1", "p2", at=at(12)))
    batch(shop, "2025-03-10")
    assert "up to date" in capsys.readouterr().out
    assert manifest_of(done).created == made
    # a file of the batch that was written again, with nothing new in it, makes the same records
    path = shop / "logs" / "2025-03-08" / "events.jsonl"
    path.write_bytes(b"\n" + path.read_bytes())
    batch(shop, "2025-03-10")
    assert records(done, "train", "training") == before


def test_dates_without_a_place_in_the_path_filter_the_events(shop):
    logs = [str(path) for path in sorted((shop / "logs").rglob("*.jsonl"))]
    manifest = build(shop / "task.yaml", logs[0], shop / "filtered", "--input", *logs, "--date", "2025-03-11")
    assert bought(shop / "filtered") == {"r10": False, "r11": False}
    assert manifest.events["purchase"].unmatched == 1  # its impression lies before the batch
