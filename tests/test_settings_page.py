"""The tables of docs/settings.md are those of the code, and the code says what a reader needs."""

from collections.abc import Iterator

import pytest
from pydantic.fields import FieldInfo

from docs.list_settings import GATEWAY_PAGE, items_of, list_settings, section_of, sections
from docs.settings_tables import unit_of
from serving.backends.registry import BACKENDS
from serving.settings import Settings


def test_the_page_is_what_make_settings_writes() -> None:
    page = GATEWAY_PAGE.read_text()
    assert page.count("<!-- settings: ") == page.count("<!-- end -->") == 3
    assert list_settings(page) == page, "docs/settings.md is not what the code is: run make settings"


def keys() -> Iterator[tuple[str, FieldInfo]]:
    """Every key of the settings file and every flag, by its path."""
    yield from ((name, field) for name, field in Settings.model_fields.items() if section_of(field) is None)
    for path, model in sections():
        yield from ((f"{path}.{name}", field) for name, field in model.model_fields.items())


KEYS = dict(keys())


def test_a_table_has_a_row_for_each_key() -> None:
    rows = [line for line in list_settings(GATEWAY_PAGE.read_text()).splitlines() if line.startswith("| `")]
    assert len(rows) == len(KEYS) > 60


@pytest.mark.parametrize("path", KEYS)
def test_a_key_has_one_sentence_of_meaning(path: str) -> None:
    meaning = KEYS[path].description or ""
    assert meaning.endswith(".")
    assert ". " not in meaning
    assert "|" not in meaning


@pytest.mark.parametrize("path", [path for path, field in KEYS.items() if field.annotation in (int, float)])
def test_a_number_has_a_unit_and_a_bound(path: str) -> None:
    unit = unit_of(KEYS[path])
    assert unit
    assert len(KEYS[path].metadata) > 1
    for suffix in ("seconds", "bytes", "characters"):
        assert path.endswith(suffix) == (unit == suffix)


def test_the_backends_are_named() -> None:
    meaning = KEYS["backend"].description or ""
    assert all(f"`{name}`" in meaning for name in BACKENDS)


def test_only_lists_and_sections_hold_models() -> None:
    lists = [path for path, field in KEYS.items() if items_of(field) is not None]
    assert lists == ["api_keys", "admin.keys"]
