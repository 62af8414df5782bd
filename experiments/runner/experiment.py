"""An experiment: what it computes, and what its report says. `python -m experiments` runs it by its name."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from matplotlib.figure import Figure

from experiments.runner.cells import Cell, run_cells
from experiments.runner.report import Claim, Report
from experiments.runner.trials import TRIAL_FORMAT, run_trial
from experiments.runner.workers import Work
from features.task import SectionT, load_yaml, parse

FindingsT = TypeVar("FindingsT")


def load_settings(path: str, model: type[SectionT]) -> SectionT:
    """An experiment's YAML as its typed, frozen model. Errors: InputError naming file, field, value and expectation."""
    return parse(load_yaml(path, "settings file", ("extends", *model.model_fields)), path, model, "the settings file")


def _unchanged(settings: SectionT) -> SectionT:
    return settings


@dataclass(frozen=True, kw_only=True)
class Experiment(Generic[SectionT, FindingsT]):
    """One experiment, of which `run` makes a report.

    name: of its settings file in experiments/configs, and of its report.
    title: of the report.
    settings: the model of the settings file.
    cells: (settings, out, quick) -> what is computed. A quick run's cells may read files that it writes below `out`.
    gather: (settings, cells, result of each cell) -> the findings, as the functions below take them.
    claims: (settings, findings) -> what was to be shown, each claim with the rule that decides it.
    raw: (settings, findings) -> JSON values for results.json, beside the claims.
    body: (settings, findings, claims, quick) -> the report's Markdown below its title.
    figure: (settings, findings) -> the chart.
    caption: what the chart shows.
    packages: whose versions decide the digits.
    work, version: what computes a cell, as `run_cells` takes them.
    quick_settings: the settings of a quick run.
    """

    name: str
    title: str
    settings: type[SectionT]
    cells: Callable[[SectionT, Path, bool], Sequence[Cell]]
    gather: Callable[[SectionT, Sequence[Cell], Sequence[Any]], FindingsT]
    claims: Callable[[SectionT, FindingsT], list[Claim]]
    raw: Callable[[SectionT, FindingsT], dict[str, Any]]
    body: Callable[[SectionT, FindingsT, Sequence[Claim], bool], Sequence[str]]
    figure: Callable[[SectionT, FindingsT], Figure]
    caption: str
    packages: tuple[str, ...] = ("tensorflow", "numpy")
    work: Work = run_trial
    version: str = TRIAL_FORMAT
    quick_settings: Callable[[SectionT], SectionT] = _unchanged

    def run(self, settings_file: str, out: Path, processes: int, quick: bool) -> str:
        """Computes the cells that are missing in `out` and writes the report there.

        Returns a line that says how many claims held and where the report is. Errors: InputError.
        """
        settings = load_settings(settings_file, self.settings)
        if quick:
            settings = self.quick_settings(settings)
        cells = self.cells(settings, out, quick)
        results = run_cells(cells, self.work, out, processes, self.version)
        report = self.report(settings, self.gather(settings, cells, results), quick)
        report.write(out)
        held = [claim["held"] for claim in report.results["claims"]]
        return f"{sum(held)} of {len(held)} claims held; wrote {out / self.name}.md"

    def report(self, settings: SectionT, findings: FindingsT, quick: bool) -> Report:
        claims = self.claims(settings, findings)
        return Report(
            name=self.name,
            title=self.title,
            packages=self.packages,
            settings=settings.model_dump(mode="json"),
            results={"claims": [asdict(claim) for claim in claims], **self.raw(settings, findings)},
            body=self.body(settings, findings, claims, quick),
            figure=self.figure(settings, findings),
            caption=self.caption,
        )
