"""A dataset of each locale that the logs name, by one command."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from beam_jobs import build_elwc
from beam_jobs.launch.locales import MAX_LOCALES, batch_locales, merge_locales
from beam_jobs.sources.log_readers import READERS
from features.errors import InputError
from tests.beam_jobs.datasets import ANY_LOSS, groups, manifest_of, read_dead_letters, write_task
from tests.beam_jobs.log_lines import NOON, act, impression, write_jsonl

SHOWN = [{"item_id": f"p{number}", "features": {"title": f"title {number}"}} for number in range(3)]
LOCALES = {"en-GB": 6, "en_gb": 3, "de-DE": 4, "../../de": 1, "": 2}  # as logged -> requests, each with a click


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locales")
    write_task(folder, dataset={"limits": ANY_LOSS})
    rows: list[Any] = [b"no event", act("click", "unknown", "p1")]
    for locale, requests in LOCALES.items():
        for number in range(requests):
            rows.append(impression(f"{locale}{number}", f"{locale} query {number}", *SHOWN, locale=locale))
            rows.append(act("click", f"{locale}{number}", "p1"))
    rows.append(impression("lone", "one item", SHOWN[0], locale="fr-FR"))  # which makes no group
    write_jsonl(folder / "events.jsonl", *rows)
    with pytest.raises(InputError, match=r"makes a query group .*fr-fr\.refused"):
        build(folder)
    return folder


def build(folder: Path, output: str = "{locale}") -> None:
    arguments = ["--config", folder / "task.yaml", "--input", folder / "events.jsonl", "--output", folder / output]
    build_elwc.main([*map(str, arguments)])


def test_each_locale_has_its_dataset_and_one_that_makes_no_group_hinders_no_other(shop: Path) -> None:
    assert sorted(path.name for path in shop.iterdir() if not path.name.startswith(".")) == [
        *("de-de", "en-gb", "events.jsonl", "fr-fr.refused", "task.yaml"),
    ]
    assert {group.context["query"] for group in groups(shop / "de-de").values()} == {
        f"de-DE query {number}" for number in range(4)
    }
    assert len(groups(shop / "en-gb")) == 9


def test_the_counts_of_each_dataset_reconcile_with_all_that_the_logs_hold(shop: Path) -> None:
    logged = 2 * sum(LOCALES.values()) + 1 + 1 + 1  # the lone impression, the click of no request, the line of no event
    for locale, requests in (("de-de", 4), ("en-gb", 9)):
        manifest = manifest_of(shop / locale)
        assert manifest.options["locale"] == locale
        assert (manifest.events["impression"].used, manifest.events["click"].used) == (requests, requests)
        assert (manifest.events["click"].unmatched, manifest.events["unknown"].malformed) == (1, 1)
        assert all(counts.reconciles for counts in manifest.events.values())
        assert sum(counts.read for counts in manifest.events.values()) + manifest.skipped["other_locale"] == logged
        assert len(read_dead_letters(shop / locale)) == 2
        assert not [warning for warning in manifest.warnings if "locale" in warning]


def test_a_second_command_finds_them_up_to_date(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="fr-fr"):
        build(shop)
    said = capsys.readouterr().out
    assert f"up to date: {shop / 'de-de'}" in said
    assert f"up to date: {shop / 'en-gb'}" in said


def test_logs_that_name_no_locale_are_refused(tmp_path: Path) -> None:
    write_task(tmp_path)
    write_jsonl(tmp_path / "events.jsonl", impression("r1", "sofa", *SHOWN))
    with pytest.raises(InputError, match="the logs name no locale: leave it out"):
        build(tmp_path)
    assert not list(tmp_path.glob(".locales*"))


def test_one_locale_and_each_locale_are_not_asked_for_together(tmp_path: Path) -> None:
    write_task(tmp_path, dataset={"locale": "de-DE"})
    write_jsonl(tmp_path / "events.jsonl", impression("r1", "sofa", *SHOWN, locale="de-DE"))
    with pytest.raises(InputError, match=r"dataset\.locale of 'de-DE' alone: leave one of them out"):
        build(tmp_path)


def test_what_is_no_locale_s_name_names_no_directory() -> None:
    named = ["en_GB", "EN-gb ", "zh-Hant-TW", "..", "/etc", "de/../..", "dataset", "", "e", "de-" + "x" * 9]
    lines = [orjson.dumps(impression(f"r{n}", "sofa", "p1", locale=name)) for n, name in enumerate(named)]
    hostile = orjson.dumps({**act("click", "r1", "p1"), "click": {"item_id": "p1", "locale": ["fr"]}})
    (found,) = batch_locales(("events.jsonl", 1, [*lines, hostile, b"no event"]), READERS["native"], None)
    assert found == {"en-gb", "zh-hant-tw"}


def test_only_events_of_the_asked_days_name_locales() -> None:
    rows = [impression("r", "sofa", "p1", at=NOON + at, locale=name) for at, name in ((1000, "de"), (2000, "fr"))]
    batch = "events.jsonl", 1, [orjson.dumps(row) for row in rows]
    (found,) = batch_locales(batch, READERS["native"], (NOON + 1500, NOON + 2500))
    assert found == {"fr"}


def test_locales_beyond_what_a_job_makes_take_no_memory() -> None:
    sets = [frozenset({f"en-{number}"}) for number in range(3 * MAX_LOCALES)]
    assert len(merge_locales([merge_locales(sets[:MAX_LOCALES]), merge_locales(sets[MAX_LOCALES:])])) == MAX_LOCALES + 1
