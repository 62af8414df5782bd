"""The order of the tests, and what each of the two workers runs."""

from pathlib import PurePosixPath

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

# files that train models go first, so that no worker is left with one of them at the end
LONGEST = ("test_end_to_end.py", "test_methods.py", "test_fit.py", "test_command_line.py", "test_leak_guard.py")
FITTED = ("test_fit.py", "test_command_line.py", "test_leak_guard.py", "test_export.py")  # look at one fitted shop

hypothesis.settings.register_profile("suite", max_examples=30, deadline=None)  # a shared machine stalls now and then
hypothesis.settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


class FittedTogether(LoadFileScheduling):
    """A file's tests share a worker; those of the fitted shop do too, so that it is fitted once."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "fitted" if PurePosixPath(file).name in FITTED else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FittedTogether:
    return FittedTogether(config, log)
