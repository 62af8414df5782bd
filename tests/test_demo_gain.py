"""The demo's gain for five seeds: what the README claims of one run must not be the luck of its seed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).parents[1]
TASK = ROOT / "configs" / "product_search.yaml"
SEEDS = (1, 2, 3, 4, 5)


def command(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's simulated logs, dataset and vocabulary."""
    root = tmp_path_factory.mktemp("shop")
    task = ("--config", str(TASK))
    command("simulator", *task, "--output", f"{root}/logs")
    logs = ("--input", f"{root}/logs/events-*.jsonl.gz", "--products", f"{root}/logs/products.jsonl.gz")
    command("beam_jobs.build_elwc", *task, *logs, "--output", f"{root}/dataset")
    command("beam_jobs.build_vocabulary", *task, "--dataset", f"{root}/dataset", "--output", f"{root}/vocabulary")
    return root


def fitted(shop: Path, seed: int) -> dict[str, Any]:
    """The metrics of one training seed on the same dataset."""
    task = shop / f"seed_{seed}.yaml"
    task.write_text(yaml.safe_dump({"extends": str(TASK), "seed": seed}))
    data = ("--dataset", f"{shop}/dataset", "--vocabulary", f"{shop}/vocabulary")
    relevance = ("--relevance", f"{shop}/logs/relevance.tsv.gz")
    command("trainer", "fit", "--config", str(task), *data, *relevance, "--workdir", f"{shop}/run_{seed}")
    metrics: dict[str, Any] = json.loads((shop / f"run_{seed}" / "metrics.json").read_bytes())
    return metrics


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_student_gains_for_every_one_of_five_seeds(shop: Path) -> None:
    gains = []
    for seed in SEEDS:
        metrics = fitted(shop, seed)
        assert metrics["positive_test_groups"] >= 1000
        gains.append(metrics["models"]["student"]["ndcg@8"]["gain"])
        print(
            f"seed {seed}: student gain {gains[-1]['value']:+.1%} [{gains[-1]['low']:+.1%}, {gains[-1]['high']:+.1%}]"
        )
    values = [gain["value"] for gain in gains]
    print(f"mean of five seeds: {np.mean(values):+.1%}, from {min(values):+.1%} to {max(values):+.1%}")
    assert min(values) > 0.0, values
    assert sum(gain["low"] > 0.0 for gain in gains) >= 4, gains
