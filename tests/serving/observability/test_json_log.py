"""The log loses no line when several threads write."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.observability.json_log import LogWriter

THREADS, LINES_EACH = 8, 500


def test_threads_that_log_at_the_same_time_lose_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LogWriter()
    lines.common_fields = {"process": 3}

    def say(thread: int) -> None:
        for number in range(LINES_EACH):
            lines.add("said", 20, {"thread": thread, "number": number})

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(say, range(THREADS)))
    written = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(written) == THREADS * LINES_EACH
    assert len({(line["thread"], line["number"]) for line in written}) == THREADS * LINES_EACH
    assert {(line["event"], line["level"], line["process"]) for line in written} == {("said", "info", 3)}
