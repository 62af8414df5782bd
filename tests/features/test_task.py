"""Task files: reading, extending, and every way in which one can be wrong."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from features.errors import InputError
from features.task import TASK_SECTIONS, Section, load_task, parse_section

ROOT = Path(__file__).parents[2]


def written(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_a_task_file_is_its_sections(tmp_path: Path):
    path = written(tmp_path, "task.yaml", "name: shop\nseed: 7\nteachers:\n  - {name: click, sees: [click]}\n")
    assert load_task(path) == {"name": "shop", "seed": 7, "teachers": [{"name": "click", "sees": ["click"]}]}


def test_an_override_changes_only_what_it_names(tmp_path: Path):
    written(tmp_path, "base.yaml", "name: base\ntraining: {steps: 10, batch: 4}\nteachers: [{name: a}, {name: b}]\n")
    path = written(tmp_path, "variant.yaml", "extends: base.yaml\ntraining: {steps: 20}\nteachers: [{name: c}]\n")
    # mappings are merged key by key; a list replaces the list it extends
    expected = {"name": "base", "training": {"steps": 20, "batch": 4}, "teachers": [{"name": "c"}]}
    assert load_task(path) == expected


def test_mappings_merge_at_any_depth_and_other_values_replace(tmp_path: Path):
    written(tmp_path, "base.yaml", "training: {optimiser: {rate: 1, decay: 2}, warm: {up: 1}}\n")
    path = written(tmp_path, "b.yaml", "extends: base.yaml\ntraining: {optimiser: {rate: 3}, warm: 5}\n")
    assert load_task(path) == {"training": {"optimiser": {"rate": 3, "decay": 2}, "warm": 5}}


def test_extends_is_relative_to_the_file_that_says_it(tmp_path: Path):
    written(tmp_path, "shop/base.yaml", "extends: ../root.yaml\nseed: 1\n")
    written(tmp_path, "root.yaml", "name: root\nseed: 0\n")
    path = written(tmp_path, "shop/variants/v.yaml", "extends: ../base.yaml\n")
    assert load_task(path) == {"name": "root", "seed": 1}


def test_a_file_extended_twice_in_different_files_is_no_cycle(tmp_path: Path):
    written(tmp_path, "base.yaml", "name: base\n")
    for name in ("one.yaml", "two.yaml"):
        assert load_task(written(tmp_path, name, "extends: base.yaml\n")) == {"name": "base"}


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_cycle_is_refused(tmp_path: Path, length: int):
    for n in range(length):
        written(tmp_path, f"{n}.yaml", f"extends: {(n + 1) % length}.yaml\n")
    with pytest.raises(InputError, match=r"extends itself through .*remove one `extends`"):
        load_task(str(tmp_path / "0.yaml"))


def test_a_cycle_through_a_symbolic_link_is_refused(tmp_path: Path):
    written(tmp_path, "a.yaml", "extends: link.yaml\n")
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    with pytest.raises(InputError, match="extends itself"):
        load_task(str(tmp_path / "a.yaml"))


MAPPINGS = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(
    base=st.dictionaries(st.sampled_from("abc"), MAPPINGS), override=st.dictionaries(st.sampled_from("abc"), MAPPINGS)
)
def test_whatever_the_override_says_holds(tmp_path_factory: pytest.TempPathFactory, base: Any, override: Any):
    folder = tmp_path_factory.mktemp("task")
    written(folder, "base.yaml", f"training: {base}\n")
    merged = load_task(written(folder, "v.yaml", f"extends: base.yaml\ntraining: {override}\n"))["training"]
    assert _holds(merged, override)
    assert {key: merged[key] for key in base if key not in override} == {
        key: value for key, value in base.items() if key not in override
    }
    assert set(merged) == {*base, *override}


def _holds(merged: Any, override: Any) -> bool:
    if not isinstance(override, dict):
        return bool(merged == override)
    return isinstance(merged, dict) and all(key in merged and _holds(merged[key], override[key]) for key in override)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"holds NoneType, expected a mapping of extends, name, "),
        ("- a\n- b\n", r"holds list, expected a mapping"),
        ("just words", r"holds str, expected a mapping"),
        ("name: [unclosed", r"is not valid YAML"),
        ("seed: 1\nname: a\nseed: 2\n", r"the key 'seed' stands twice in one mapping, expected once"),
        ("training: {steps: 1, loss: a, steps: 2}", r"the key 'steps' stands twice"),
        ("name: \tx: y\n  z", r"is not valid YAML"),
        ("[" * 5000, r"is not valid YAML"),
        (b"name: \xff\xfe", r"is not valid YAML"),
        (b"name: a\0b", r"is not valid YAML"),
        ("seed: 2024-99-99", r"is not valid YAML: month must be in 1\.\.12"),
        ("seed: " + "9" * 5000, r"is not valid YAML"),
        ("name: !!python/object/apply:os.system ['true']", r"is not valid YAML"),
        ("sedd: 7", r"unknown key 'sedd', expected one of .*seed"),
        ("7: x", r"unknown key 7, expected one of"),
        ("extends: [a.yaml]", r"extends is \['a\.yaml'\], expected the path of another task file"),
        ("extends: 7", r"extends is 7, expected the path"),
        ("extends: nowhere.yaml", r"cannot read task file .*nowhere\.yaml: No such file.*give an existing"),
        ('extends: "a\\0b"', r"is not valid YAML"),
    ],
)
def test_a_wrong_task_file_is_refused_in_one_message(tmp_path: Path, text: str | bytes, complaint: str):
    with pytest.raises(InputError, match=complaint):
        load_task(written(tmp_path, "task.yaml", text))


def test_yaml_cannot_run_code(tmp_path: Path):
    ran = tmp_path / "ran"
    text = f"name: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{ran}']]\n"
    with pytest.raises(InputError):
        load_task(written(tmp_path, "task.yaml", text))
    assert not ran.exists()


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="No such file or directory; give an existing YAML file"):
        load_task(str(tmp_path / "nowhere.yaml"))
    with pytest.raises(InputError, match="Is a directory"):
        load_task(str(tmp_path))


# --- sections


class Oven(Section):
    """A section for these tests."""

    degrees: float = Field(default=180.0, ge=0, le=300)
    trays: tuple[int, ...] = (1, 2)
    name: str = "oven"


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({}, Oven()),
        ({"training": {}}, Oven()),
        ({"training": {"degrees": 200, "trays": [3]}}, Oven(degrees=200.0, trays=(3,))),
    ],
)
def test_a_section_takes_what_it_is_given_and_the_defaults(task: dict[str, Any], expected: Oven):
    assert parse_section(task, "training", Oven) == expected


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"degree": 200}, r"training\.degree is 200: unknown key, expected one of degrees, trays, name\. Correct it"),
        ({"degrees": "hot"}, r"training\.degrees is 'hot': .*valid number"),
        ({"degrees": True}, r"training\.degrees is True: .*valid number"),
        ({"degrees": 301}, r"training\.degrees is 301: .*less than or equal to 300"),
        ({"degrees": float("nan")}, r"training\.degrees is nan: .*finite number"),
        ({"degrees": float("inf")}, r"training\.degrees is inf: .*finite number"),
        ({"trays": [1, "b"]}, r"training\.trays\.1 is 'b': .*valid integer"),
        ({"trays": 3}, r"training\.trays is 3: .*valid array|training\.trays is 3: .*valid tuple"),
        ({"name": 3}, r"training\.name is 3: .*valid string"),
        ({"name": None}, r"training\.name is None: .*valid string"),
        (None, r"training is None"),
        ([], r"training is \[\]"),
        ("hot", r"training is 'hot'"),
        ({(1, 2): 3}, r"training cannot be read as data: keys must be str"),
    ],
)
def test_a_wrong_section_names_field_value_and_expectation(section: Any, complaint: str):
    with pytest.raises(InputError, match=complaint):
        parse_section({"training": section}, "training", Oven)


def test_a_section_that_holds_itself_is_refused(tmp_path: Path):
    task = load_task(written(tmp_path, "task.yaml", "training: &a {trays: [*a]}\n"))
    with pytest.raises(InputError, match="training cannot be read as data: Circular reference"):
        parse_section(task, "training", Oven)


def test_a_section_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Oven().degrees = 3.0  # type: ignore[misc]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_task_file_of_the_project_loads(path: Path):
    from features.spec import load_spec

    task = load_task(str(path))
    assert set(task) <= set(TASK_SECTIONS)
    assert load_spec(task).regular
