from collections import Counter

import numpy as np
import pytest

from beam_jobs.sources.native_log import Event, Malformed, read_event
from simulator.log_faults import DAMAGES, FaultsConfig, LogLine, inject_faults
from tests.beam_jobs.log_lines import NOON

DAY_MS = 86_400_000
NO_FAULTS = {"duplicate": 0.0, "late": 0.0, "unknown_request": 0.0, "unknown_item": 0.0, "malformed": 0.0}


def one_request(clicks: int) -> list[LogLine]:
    impression = b',"request_id":"r1","user_id":"u1","impression":{"query":"q","items":[{"item_id":"p","position":0}]}}'
    click = b',"request_id":"r1","user_id":"u1","click":{"item_id":"p"}}'
    lines = [LogLine(NOON, "impression", b'{"event_id":"r1.0","timestamp_ms":', impression)]
    for number in range(1, clicks + 1):
        lines.append(LogLine(NOON + 1000, "click", b'{"event_id":"r1.%d","timestamp_ms":' % number, click, b'"p"'))
    return lines


def injected(clicks: int, **rates: float) -> tuple[list[bytes], Counter[str]]:
    config = FaultsConfig(**{**NO_FAULTS, **rates})
    written, counts = inject_faults(one_request(clicks), config, "f0", np.random.default_rng(0))
    return [line for _, line in written], counts


def test_without_faults_lines_are_unchanged():
    lines, counts = injected(clicks=2)
    assert lines == [line.content for line in one_request(2)]
    assert not counts


def test_a_duplicate_is_the_same_line_twice():
    lines, counts = injected(clicks=1, duplicate=1.0)
    assert lines == [line.content for line in one_request(1) for _ in range(2)]
    assert counts == {"duplicate impression": 1, "duplicate click": 1}


def test_a_late_interaction_is_stamped_days_after_and_an_impression_never_is():
    lines, counts = injected(clicks=1, late=1.0, late_days=30.0)
    assert [read_event(line).timestamp_ms for line in lines] == [NOON, NOON + 1000 + 30 * DAY_MS]
    assert counts == {"late click": 1}


def test_an_unknown_request_adds_an_event():
    lines, counts = injected(clicks=2, unknown_request=1.0)
    events = [read_event(line) for line in lines]
    assert [event.request_id == "r1" for event in events] == [True, True, False, True, False]
    assert len({event.event_id for event in events}) == 5
    assert counts == {"unknown_request click": 2}


def test_an_unknown_item_adds_an_event_to_the_request():
    lines, counts = injected(clicks=1, unknown_item=1.0)
    events = [read_event(line) for line in lines]
    assert [event.body.get("item_id") for event in events] == [None, "p", "never-shown"]
    assert {event.request_id for event in events} == {"r1"}
    assert counts == {"unknown_item click": 1}


def test_a_malformed_line_is_added_and_the_event_is_kept():
    lines, counts = injected(clicks=99, malformed=1.0)
    read = [read_event(line) for line in lines]
    assert sum(isinstance(event, Malformed) for event in read) == counts["malformed"] == 100
    assert sum(isinstance(event, Event) for event in read) == 100
    assert {name for name in counts if ": " in name} == {f"malformed: {name}" for name in DAMAGES}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("line", [line.content for line in one_request(1)], ids=["impression", "click"])
def test_no_reader_accepts_a_damaged_line(name, line):
    assert isinstance(read_event(line), Event)
    assert isinstance(read_event(DAMAGES[name](line)), Malformed)
