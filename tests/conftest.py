"""The order of the tests: files that train models first, so that no worker is left with one of them at the end."""

import pytest

LONGEST = ("test_fit.py", "test_end_to_end.py", "test_methods.py", "test_command_line.py", "test_leak_guard.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))
