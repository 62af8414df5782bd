"""One tiny shop, and one run of `fit` over it, for all tests that only look."""

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainer.config import TrainerConfig, load_config


@dataclass(frozen=True)
class Fitted:
    """What one `fit` left behind. output: what it printed."""

    root: Path
    workdir: Path
    task: Path
    config: TrainerConfig
    metrics: dict[str, Any]
    output: str


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny shop: dataset/, vocabulary/, relevance.tsv, task.yaml."""
    from tests.trainer.shop import write_shop

    root = tmp_path_factory.mktemp("tiny_shop")
    write_shop(root)
    return root


@pytest.fixture(scope="session")
def run(shop: Path) -> Any:
    """An opened run of the tiny shop in which nothing was trained."""
    from trainer.run import Run

    return Run(load_config(str(shop / "task.yaml")), str(shop / "untrained"))


@pytest.fixture(scope="session")
def fitted(shop: Path) -> Fitted:
    """The tiny shop with two teachers and two recipes trained, evaluated and exported."""
    from trainer.fit import fit

    config = load_config(str(shop / "task.yaml"))
    with contextlib.redirect_stdout(io.StringIO()) as output:
        metrics = fit(config, str(shop / "run"))
    return Fitted(shop, shop / "run", shop / "task.yaml", config, metrics, output.getvalue())
