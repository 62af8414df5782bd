"""An experiment: its settings, and a run from settings to report in real processes."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from pydantic import Field

from experiments.runner.experiment import Experiment, load_settings
from experiments.runner.report import Claim, claims_table
from features.errors import InputError
from features.task import Section
from tests.experiments.runner.squares import square


class Toy(Section):
    """Settings of a toy experiment."""

    seed: int
    widths: tuple[int, ...] = Field(min_length=1)


def test_settings_are_read_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text("seed: 7\nwidths: [8, 16]\n")
    assert load_settings(str(path), Toy) == Toy(seed=7, widths=(8, 16))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot read settings file .*toy.yaml: No such file"),
        (b"seed: [", "toy.yaml is not valid YAML"),
        (b"\xff\xfe\x00", "toy.yaml is not valid YAML"),
        (b"!!python/object/apply:os.getpid []", "toy.yaml is not valid YAML"),
        (b"- seed", "toy.yaml holds list, expected a mapping of extends, seed, widths"),
        (b"", "toy.yaml holds NoneType"),
        (b"seed: 7", "toy.yaml.widths"),
        (b"seed: x\nwidths: [8]", "toy.yaml.seed is 'x': Input should be a valid integer"),
        (b"seed: 7\nwidths: [8]\nseed: 8", "the key 'seed' stands twice"),
        (b"seed: 7\nwidths: [8]\ndepth: 2", "toy.yaml: unknown key 'depth', expected one of extends, seed, widths"),
    ],
    ids=["missing", "broken", "binary", "hostile", "a list", "empty", "incomplete", "mistyped", "doubled", "unknown"],
)
def test_wrong_settings_are_refused(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    path = tmp_path / "toy.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        load_settings(str(path), Toy)


# --- a run


def experiment(notes: Path) -> Experiment[Toy, list[int]]:
    """Squares each width, a quick run one width more."""
    return Experiment(
        name="toy",
        title="A toy",
        settings=Toy,
        cells=lambda settings, _, __: [{"number": width, "notes": str(notes)} for width in settings.widths],
        gather=lambda _, __, results: [result["square"] for result in results],
        claims=lambda _, squares: [
            Claim("all above 60", str(min(squares)), min(squares) > 60),
            Claim("one above 200", str(max(squares)), max(squares) > 200),
        ],
        raw=lambda settings, squares: {"squares": dict(zip(map(str, settings.widths), squares, strict=True))},
        body=lambda _, __, claims, quick: ["A quick run." if quick else "A full run.", claims_table(claims)],
        figure=lambda _, __: Figure(),
        caption="nothing",
        packages=("numpy",),
        work=square,
        version="squares 1",
        quick_settings=lambda settings: settings.model_copy(update={"widths": (*settings.widths, 9)}),
    )


def test_a_run_computes_the_cells_judges_the_claims_and_writes_the_report(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text("seed: 7\nwidths: [8, 16]\n")
    toy, out = experiment(tmp_path / "notes"), tmp_path / "out"
    message = toy.run(str(tmp_path / "toy.yaml"), out, processes=1, quick=False)
    assert message == f"2 of 2 claims held; wrote {out}/toy.md"
    assert "A full run.\n\n| claim" in (out / "toy.md").read_text()
    results = json.loads((out / "results.json").read_text())
    assert results["settings"] == {"seed": 7, "widths": [8, 16]}
    assert results["squares"] == {"8": 64, "16": 256}
    assert results["claims"][0] == {"statement": "all above 60", "measured": "64", "held": True}

    message = toy.run(str(tmp_path / "toy.yaml"), out, processes=1, quick=True)
    assert message.startswith("2 of 2 claims held")
    assert "A quick run." in (out / "toy.md").read_text()
    assert json.loads((out / "results.json").read_text())["squares"] == {"8": 64, "16": 256, "9": 81}
    assert sorted((tmp_path / "notes").read_text().split()) == ["16", "8", "9"]  # each was computed once
