"""One model and one gateway process for all tests that only talk to it, and one for those that operate it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.serving.operated import ADMIN_KEY, HISTOGRAM, KEY, OPERATED_SETTINGS, Operated
from tests.serving.processes import GatewayProcess


@pytest.fixture(scope="session")
def shop_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export directory with version 3 of the demo's features."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("shop")
    exported_models.export(folder, exported_models.SHOP, version=3, warm_up=exported_models.WARM_UP)
    return folder


@pytest.fixture(scope="session")
def rich_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export directory of a spec with every type of feature."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("rich")
    ranges = {"price": (0.0, 100.0), "hour": (0.0, 23.0), "colour": (0.0, 1.0)}
    exported_models.export(folder, exported_models.RICH, ranges=ranges)
    return folder


@pytest.fixture(scope="session")
def shop(shop_export: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(shop_export) as gateway:
        yield gateway.wait_until_ready()


@pytest.fixture(scope="session")
def rich(rich_export: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(rich_export) as gateway:
        yield gateway.wait_until_ready()


@pytest.fixture(scope="session")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway whose features are vectors alone."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("numbers")
    exported_models.export(folder, exported_models.NUMBERS_ONLY)
    with GatewayProcess(folder) as gateway:
        yield gateway.wait_until_ready()


@pytest.fixture(scope="session")
def operated_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export directory that changes: version 1 at first."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("operated")
    exported_models.export(folder, exported_models.SHOP, version=1, score_histogram=HISTOGRAM)
    return folder


@pytest.fixture(scope="session")
def operated(operated_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A gateway with keys, an administration, little patience and a short line."""
    settings = tmp_path_factory.mktemp("settings") / "gateway.yaml"
    settings.write_text(yaml.safe_dump(OPERATED_SETTINGS))
    with GatewayProcess(operated_export, settings, key=KEY) as gateway:
        admin = gateway.admin(ADMIN_KEY)
        yield Operated(gateway.wait_until_ready(), admin, operated_export)
        admin.close()
