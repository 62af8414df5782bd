"""200 hostile lines leave nothing personal in dead letters, manifests, messages and logs; letters stay useful."""

import base64
import ipaddress
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from beam_jobs.joins.log_names import without_rare_names
from features.errors import InputError
from tests.beam_jobs import ga4_logs, ubi_logs
from tests.beam_jobs.datasets import ANY_LOSS, build, read_dead_letters, write_task
from tests.beam_jobs.log_lines import write_jsonl
from tests.beam_jobs.sinks.hostile_lines import PERSONAL, hostile_lines, sound_lines
from tests.beam_jobs.without_runner import join
from tests.published import version_of

LINES = [*hostile_lines()]


def forms_of(personal: str) -> set[str]:
    """How a value could stand in an output."""
    digits = re.sub(r"\D", "", personal)
    written = {personal, personal.lower(), quote(personal, safe=""), base64.b64encode(personal.encode()).decode()}
    return {*written, orjson.dumps(personal).decode()[1:-1], *([digits] if len(digits) > 6 else [])}


def addresses_in(text: str) -> list[str]:
    """Every IP address, as the standard library reads them: bare, with port, in brackets, with a zone."""
    found = []
    for token in re.findall(r"[0-9A-Za-z:.%\[\]]+", text):
        for candidate in {token, token.strip("[].:"), token.rpartition(":")[0].strip("[]"), token.partition("%")[0]}:
            if candidate.count(":") > 1 or candidate.count(".") == 3:
                try:
                    found.append(str(ipaddress.ip_address(candidate)))
                except ValueError:
                    continue
    return found


def assert_nothing_personal(text: str) -> None:
    lower = text.lower()
    left = [form for personal in PERSONAL for form in forms_of(personal) if len(form) > 3 and form.lower() in lower]
    assert left == []
    assert addresses_in(text) == []
    assert "@" not in text
    assert "%40" not in text


def test_the_checks_find_what_they_look_for():
    for personal in PERSONAL[:10]:
        assert addresses_in(f'{{"a":"{personal}"}}'), personal
    with pytest.raises(AssertionError):
        assert_nothing_personal("jane.doe%40example.com")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    logs = write_jsonl(folder / "events.jsonl", *sound_lines(), *(line for _, line in LINES))
    build(write_task(folder, dataset={"limits": ANY_LOSS}), logs, folder / "dataset")
    return folder / "dataset"


def test_200_hostile_lines_leave_nothing_personal(dataset):
    assert len(LINES) == 200
    letters = read_dead_letters(dataset)
    assert len(letters) >= 200
    for letter in letters:
        letter.get("source", {}).pop("file", None)  # ours
        assert_nothing_personal(orjson.dumps(letter).decode())
        numbers = re.findall(r"\d{7,}", re.sub(r'"(timestamp_ms|\w+_id)":"?\w+', "", orjson.dumps(letter).decode()))
        assert numbers == []
    manifest = orjson.loads((dataset / "manifest.json").read_bytes())
    manifest["options"].pop("logs")
    assert_nothing_personal(orjson.dumps(manifest).decode())


def test_a_job_that_fails_on_them_says_nothing_personal(tmp_path, capfd, caplog):
    logs = write_jsonl(tmp_path / "events.jsonl", *sound_lines(), *(line for _, line in LINES))
    with pytest.raises(InputError, match="lines cannot be read") as error:
        build(write_task(tmp_path), logs, tmp_path / "dataset")
    printed = capfd.readouterr()
    for text in (str(error.value), printed.out, printed.err, caplog.text):
        assert_nothing_personal(text.replace(str(tmp_path), ""))
    assert_nothing_personal((version_of(tmp_path / "dataset.refused") / "counts.json").read_text())


def test_a_letter_of_a_line_says_where_it_stands_and_what_was_expected(dataset):
    letters = [letter for letter in read_dead_letters(dataset) if "source" in letter]
    assert len(letters) >= 100
    lines = (dataset.parent / "events.jsonl").read_bytes().splitlines()
    for letter in letters:
        assert letter["source"]["file"] == str(dataset.parent / "events.jsonl")
        line = lines[letter["source"]["line"] - 1]
        assert line in {hostile for _, hostile in LINES}
        assert letter["fate"] == "malformed"
        assert letter["detail"]
        if letter["reason"] == "not_json":
            assert letter["event"] == {"bytes": len(line)}
    times = [letter for letter in letters if letter["reason"] == "timestamp_invalid"]
    assert times[0]["event"]["timestamp_ms"] == f"text of {len(PERSONAL[0])} characters"


def test_a_letter_of_an_event_has_its_type_time_and_hashes_of_ids(dataset):
    letters = [letter for letter in read_dead_letters(dataset) if letter["reason"] == "unknown_request"]
    for letter in letters:
        assert (letter["fate"], letter["detail"]) == ("unmatched", "no impression has its request_id")
        assert re.fullmatch("[0-9a-f]{16}", letter["event"]["request_id"])
        assert letter["event"]["timestamp_ms"] > 10**12
        assert list(letter["event"]["click"]) == ["item_id"]


@pytest.mark.parametrize("reader", ["ubi", "ga4"])
@pytest.mark.parametrize("personal", PERSONAL)
def test_records_of_other_logs_leave_nothing_personal(reader, personal):
    records: dict[str, list[Any]] = {
        "ubi": [
            ubi_logs.event(personal, "q1", "p1"),
            ubi_logs.event("click", personal, personal, client_id=personal, session_id=personal, message=personal),
            {**ubi_logs.event("click", "q1", "p1"), "timestamp": personal, personal: personal},
            ubi_logs.event("impression", "q1", personal, personal),
        ],
        "ga4": [
            {**ga4_logs.row("select_item", personal, user=personal), "event_name": personal},
            {**ga4_logs.row("select_item", personal, user=personal), "geo": {"city": personal}},
            {**ga4_logs.row("purchase", personal, user=personal), "event_timestamp": personal},
            {**ga4_logs.listed(personal, personal, user=personal), "items": personal},
        ],
    }
    joined = join(map(orjson.dumps, records[reader]), reader=reader)
    assert len(joined.letters) >= 2
    for letter in joined.letters:
        assert_nothing_personal(orjson.dumps(letter).decode())
    assert_nothing_personal(orjson.dumps(dict(without_rare_names(joined.tally))).decode())
