"""From a handful of log lines, through every real command, to a gateway's answer over HTTP: one score for one pair.

The task adds a price, a brand, a picture and a flag to the demo's features, in YAML and nowhere else.
"""

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.published import version_of
from tests.serving.processes import GatewayProcess

ROOT = Path(__file__).parents[1]
COLOURS = ["red", "blue", "green", "navy", "black", "white"]
THINGS = ["sofa", "lamp", "table", "chair", "rug", "shelf"]
Scored = tuple[dict[str, Any], list[float]]  # a query group in /rank's shape, and sigma of the logits of its items
REQUESTS, ITEMS = 360, 6
GROUPS = 25  # of the test split, compared pair by pair
START = 1_740_000_000_000  # milliseconds

TASK: dict[str, Any] = {
    "extends": str(ROOT / "configs" / "product_search.yaml"),
    "features": {
        "price": {"type": "float", "level": "item"},
        "brand": {"type": "categorical", "level": "item", "default": "none"},
        "picture": {"type": "float", "level": "item", "length": 4},
        "in_stock": {"type": "bool", "level": "item", "default": True},
    },
    "teachers": [{"name": "click", "sees": ["click"]}],
    "dataset": {"splits": {"train": 0.5, "valid": 0.25, "test": 0.25}, "min_distinct_users": 1, "shards": 1},
    "vocabulary": {"pieces": 200},
    "student": {
        "layers": 2, "split_layers": 1, "width": 16, "heads": 2, "feed_forward": 32, "hidden": [16],
        "max_context_tokens": 7, "max_item_tokens": 15,
    },
    "training": {"steps": 30, "evaluate_every": 15, "batch_groups": 8, "warmup_steps": 5},
    "teacher_training": {"steps": 10, "evaluate_every": 10},
    "evaluation": {"bootstrap_samples": 100, "baseline": "student"},
    "recipes": [{"name": "student", "teachers": ["click"]}],
    "export": {"litert": ["float"]},
}  # fmt: skip


def log_lines() -> Iterator[dict[str, Any]]:
    """Simulated shoppers who click what fits the query, and buy what fits and is cheap."""
    generator = random.Random(12)
    for number in range(REQUESTS):
        wanted = [generator.choice(COLOURS), generator.choice(THINGS)]
        if number % 3 == 0:
            wanted.append(generator.choice(["oak", "velvet", "steel"]))
        event = {"request_id": f"r{number}", "user_id": f"u{number % 50}", "timestamp_ms": START + 1000 * number}
        items = []
        for place in range(ITEMS):
            words = list(wanted) if place % 3 == 0 else [generator.choice(COLOURS), generator.choice(THINGS)]
            values = {
                "title": " ".join([*words, generator.choice(["Sale!", "with free shipping", "XL"])]),
                "price": round(generator.uniform(1, 100), 2),
                "picture": [round(generator.random(), 3) for _ in range(4)],
                "in_stock": generator.random() < 0.9,
            }
            if place != 2:  # an item without a brand takes the default
                values["brand"] = generator.choice(["acme", "bolt", "crux"])
            items.append({"item_id": f"p{number}-{place}", "position": place, "features": values})
        yield event | {"event_id": f"e{number}", "impression": {"query": " ".join(wanted), "items": items}}
        for place in (0, 3):
            item = {"item_id": items[place]["item_id"]}
            later = {**event, "timestamp_ms": event["timestamp_ms"] + 500}
            yield later | {"event_id": f"e{number}-{place}-click", "click": item}
            if items[place]["features"]["price"] < 60:
                yield later | {"event_id": f"e{number}-{place}-add", "add_to_cart": item}
                yield later | {"event_id": f"e{number}-{place}-buy", "purchase": item}


@dataclass(frozen=True)
class Shop:
    """What the commands made. task: the task file."""

    task: Path
    dataset: Path
    vocabulary: Path
    workdir: Path


def command(*arguments: str | Path) -> str:
    """Runs `python -m ...` and returns what it printed."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    line = [sys.executable, "-m", *map(str, arguments)]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, f"{' '.join(line)}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    root = tmp_path_factory.mktemp("end_to_end")
    logs = root / "events.jsonl.gz"
    logs.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in log_lines()).encode()))
    shop = Shop(root / "task.yaml", root / "dataset", root / "vocabulary", root / "run")
    shop.task.write_text(yaml.safe_dump(TASK))
    command("beam_jobs.build_elwc", "--config", shop.task, "--input", logs, "--output", shop.dataset)
    command("beam_jobs.build_vocabulary", "--config", shop.task, "--dataset", shop.dataset, "--output", shop.vocabulary)
    data = ("--dataset", shop.dataset, "--vocabulary", shop.vocabulary)
    command("trainer", "fit", "--config", shop.task, *data, "--workdir", shop.workdir)
    return shop


@pytest.fixture(scope="module", params=["embedded", "litert"])
def gateway(made: Shop, request: pytest.FixtureRequest) -> Iterator[GatewayProcess]:
    settings = made.workdir / f"{request.param}.yaml"
    settings.write_text(yaml.safe_dump({"backend": request.param}))
    with GatewayProcess(made.workdir / "export", settings) as process:
        yield process.wait_until_ready()


@pytest.fixture(scope="module")
def scored(made: Shop) -> list[Scored]:
    """Test groups in /rank's shape, each with sigma of the trained student's logits, items in the same order."""
    import numpy as np
    import tensorflow as tf

    from features.elwc import decode_group
    from trainer.config import load_config
    from trainer.data.batches import with_label
    from trainer.pipeline.inputs import DataPaths
    from trainer.pipeline.run import Run
    from trainer.pipeline.students import load_student
    from trainer.training.fit_ranker import score

    config = load_config(str(made.task))
    run = Run(config, DataPaths(str(made.dataset), str(made.vocabulary)), str(made.workdir))
    student = load_student(run, config.recipes["student"])
    found = score(student, with_label(run.test.groups.take(GROUPS), "purchase"))
    files = sorted(map(str, (version_of(made.dataset) / "test").glob("serving_elwc-*")))
    records = tf.data.TFRecordDataset(files, "GZIP").take(GROUPS).as_numpy_iterator()
    answers = []
    for record, logits, mask in zip(records, found.scores, found.mask, strict=True):
        group = decode_group(record, config.spec)
        sigma = 1.0 / (1.0 + np.exp(-logits[mask]))
        answers.append(({**group.context, "items": list(group.items)}, sigma.tolist()))
    return answers


def test_the_gateway_scores_every_pair_as_the_trainer_does(scored: list[Scored], gateway: GatewayProcess) -> None:
    answered, spread = 0, set()
    for body, expected in scored:
        assert set(body["items"][0]) == {"title", "price", "brand", "picture", "in_stock"}
        answer = gateway.post(body)
        assert answer.status_code == 200, answer.text
        results = answer.json()["results"]
        assert sorted(result["index"] for result in results) == list(range(len(expected)))
        for result in results:
            assert result["score"] == pytest.approx(expected[result["index"]], abs=1e-5)
        assert [r["score"] for r in results] == sorted((r["score"] for r in results), reverse=True)
        spread |= {round(value, 3) for value in expected}
        answered += len(results)
    assert answered >= GROUPS * 2
    assert len(spread) > 20


def test_each_feature_of_the_task_file_moves_the_gateways_score(scored: list[Scored], gateway: GatewayProcess) -> None:
    body = {**scored[0][0], "items": scored[0][0]["items"][:1]}
    before = gateway.post(body).json()["results"][0]["score"]
    item = body["items"][0]
    changes = {
        "title": "a purple elephant",
        "price": 100.0 if item["price"] < 50 else 1.0,
        "brand": "crux" if item["brand"] != "crux" else "acme",
        "picture": [1.0 - value for value in item["picture"]],
        "in_stock": not item["in_stock"],
    }
    for name, value in changes.items():
        answer = gateway.post({**body, "items": [{**item, name: value}]})
        assert answer.json()["results"][0]["score"] != before, name


def test_the_gateway_takes_no_privileged_feature(scored: list[Scored], gateway: GatewayProcess) -> None:
    body = scored[0][0]
    for name in ("click", "add_to_cart", "position", "purchase"):
        answer = gateway.post({**body, "items": [{**body["items"][0], name: 1}]})
        assert (answer.status_code, answer.json()["type"]) == (422, "/problems/privileged-feature")


TEXTS = ["", "red sofa", "red sofa " * 40, "ＲＥＤ Sofá 沙发 🛋", "\x00", "a" * 2048, "blue  lamp, XL!"]


def inputs_of_texts(queries: list[str], titles: list[list[str]]) -> tuple[dict[str, Any], Any]:
    """Groups as a backend takes them, padded to the largest, and item_count."""
    import numpy as np

    widest = max(map(len, titles))
    padded = [[title.encode() for title in group] + [b""] * (widest - len(group)) for group in titles]
    shape, generator = (len(titles), widest), np.random.default_rng(4)
    inputs = {
        "query": np.array([query.encode() for query in queries], object),
        "title": np.array(padded, object),
        "price": generator.uniform(0, 120, shape).astype(np.float32),
        "brand": generator.choice(np.array([b"acme", b"unknown"], object), shape),
        "picture": generator.random((*shape, 4), np.float32),
        "in_stock": generator.random(shape) < 0.5,
    }
    return inputs, np.array([len(group) for group in titles], np.int32)


def test_litert_scores_any_text_as_the_saved_model_does_whether_kept_or_new(made: Shop) -> None:
    import numpy as np

    from serving.backends.registry import create_backend
    from serving.exports.store import find_version, verified_copy
    from serving.settings import Settings

    folder = str(made.workdir / "export")
    with verified_copy(folder, find_version(folder)) as model:
        embedded, litert = (
            create_backend(model, Settings(export_dir=folder, backend=name)) for name in ("embedded", "litert")
        )
    titles = [TEXTS, TEXTS[1:2] * 40, [*TEXTS, "oak table"] * 3]
    inputs, counts = inputs_of_texts([TEXTS[2], "", TEXTS[3]], titles)
    expected = embedded.score(inputs, counts, 5.0)
    behind = np.arange(expected.shape[1]) >= counts[:, np.newaxis]
    for _ in range(2):  # the second time everything is kept
        found = litert.score(inputs, counts, 5.0)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert (found[behind] == 0.0).all()
    assert expected[~behind].std() > 0.01
    np.testing.assert_array_equal(litert.token_counts(TEXTS, 5.0), embedded.token_counts(TEXTS, 5.0))
    assert litert.caches["tokens"].hits == litert.caches["tokens"].misses > 0
    assert litert.caches["states"].hits > litert.caches["states"].misses > 0
