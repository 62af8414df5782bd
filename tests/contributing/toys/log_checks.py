"""The toy log's tests: its lines through READERS, the join and the job."""

import gzip
from pathlib import Path

import orjson

from beam_jobs.sources.log_readers import READERS
from tests.beam_jobs.datasets import ANY_LOSS, build, groups, write_task
from tests.beam_jobs.log_lines import NOON
from tests.beam_jobs.without_runner import join

LINES = [
    b'{"search": "s1", "at": %d, "words": "blue sofa", "shown": ["p1", "p2"]}' % NOON,
    b'{"search": "s1", "at": %d, "clicked": "p2"}' % (NOON + 1000),
    b'{"search": "s2", "at": %d, "clicked": "p2"}' % (NOON + 1000),
    b"{}",
]


def test_a_line_is_an_event():
    [shown], [clicked] = map(READERS["toy"].read, LINES[:2])
    assert (shown.type, shown.request_id, shown.body["query"]) == ("impression", "s1", "blue sofa")
    assert (clicked.type, clicked.timestamp_ms, clicked.body) == ("click", NOON + 1000, {"item_id": "p2"})


def test_every_event_gets_one_fate_and_the_counts_add_up():
    joined = join(LINES, reader="toy")
    assert joined.labels() == {"blue sofa": {"p1": (0, False, False, False), "p2": (1, True, False, False)}}
    counts = joined.events
    assert (counts["impression"].used, counts["click"].used, counts["click"].unmatched) == (1, 1, 1)
    assert counts["unknown"].malformed == 1


def test_the_job_builds_a_dataset_of_such_a_log(tmp_path: Path):
    task = write_task(tmp_path, dataset={"reader": "toy", "limits": ANY_LOSS})
    (tmp_path / "toy.jsonl.gz").write_bytes(gzip.compress(b"\n".join(LINES)))
    build(task, tmp_path / "toy.jsonl.gz", tmp_path / "dataset")
    [group] = groups(tmp_path / "dataset").values()
    assert orjson.loads(LINES[0])["shown"] == sorted(str(item["item_id"]) for item in group.items)
