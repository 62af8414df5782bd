"""Draws the rooms and their imports into docs/architecture.md, from the code: `make architecture`.

Each drawing is a Mermaid flowchart between two marks of the page, so the page needs no picture file.
"""

import re
from pathlib import Path

import grimp

_ROOT = Path(__file__).parents[1]
ARCHITECTURE_PAGE = _ROOT / "docs" / "architecture.md"
DRAWN_ROOMS = (
    "protos",
    "features",
    "inference",
    "simulator",
    "beam_jobs",
    "trainer",
    "serving",
    "experiments",
    "benchmarks",
)
_BLOCK = re.compile(r"(<!-- rooms: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def import_arrows(graph: grimp.ImportGraph, room: str | None) -> set[tuple[str, str]]:
    """The (importer, imported) pairs of rooms that differ, or of the folders of `room`."""
    pairs = (
        (_node(m, room), _node(i, room)) for m in graph.modules for i in graph.find_modules_directly_imported_by(m)
    )
    return {(importer, target) for importer, target in pairs if importer and target and importer != target}


def _node(module: str, room: str | None) -> str | None:
    """The node of a module: its room, or its folder inside `room`. Files directly in `room` share the node `files`."""
    parts = module.split(".")
    if room is None:
        return parts[0]
    if parts[0] != room:
        return None
    return parts[1] if len(parts) > 1 and (_ROOT / room / parts[1]).is_dir() else "files"


def flowchart(arrows: set[tuple[str, str]], room: str | None) -> str:
    """A Mermaid flowchart: an arrow from each importer to what it imports."""
    files = [f'    files["{room}/*.py"]'] if any("files" in arrow for arrow in arrows) else []
    lines = [f"    {importer} --> {target}" for importer, target in sorted(arrows)]
    return "\n".join(["```mermaid", "flowchart TD", *files, *lines, "```", ""])


def draw(page: str) -> str:
    """The page with new drawings. The mark `<!-- rooms: NAME -->` says which one: `house`, or the name of a room."""
    graph = grimp.build_graph(*DRAWN_ROOMS, cache_dir=None)

    def drawing(match: re.Match[str]) -> str:
        room = None if match[2] == "house" else match[2]
        return match[1] + flowchart(import_arrows(graph, room), room) + match[3]

    return _BLOCK.sub(drawing, page)


if __name__ == "__main__":
    ARCHITECTURE_PAGE.write_text(draw(ARCHITECTURE_PAGE.read_text()))
