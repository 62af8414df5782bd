"""Reads the recipes of CONTRIBUTING.md, from which the tests take every path and name that they follow."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
SECTION = "Where a new thing goes"


@dataclass(frozen=True)
class Recipe:
    """One recipe: its whole text, and its numbered steps, each on one line."""

    title: str
    text: str

    @property
    def steps(self) -> tuple[str, ...]:
        items = re.findall(r"^\d+\. (.*(?:\n   .*)*)", self.text, re.MULTILINE)
        return tuple(" ".join(item.split()) for item in items)

    def step(self, number: int, sentence: str) -> dict[str, str]:
        """Returns the code spans of a step, by their names in `sentence`.

        sentence: the step's words, where `{name}` stands for a code span.
        Errors: AssertionError if the step has other words.
        """
        words = re.split(r"\{(\w+)\}", sentence)
        pattern = "".join(f"`(?P<{word}>[^`]+)`" if i % 2 else re.escape(word) for i, word in enumerate(words))
        found = re.search(pattern, self.steps[number - 1])
        assert found, (
            f"step {number} of {self.title!r} is {self.steps[number - 1]!r}, expected {sentence!r}: "
            "let the recipe and the test that follows it say the same"
        )
        return found.groupdict()


def recipes(text: str | None = None) -> dict[str, Recipe]:
    """The recipes of a guide by title. text: of the guide; None: CONTRIBUTING.md."""
    content = CONTRIBUTING.read_text() if text is None else text
    section = re.split(rf"^## {SECTION}$", content, flags=re.MULTILINE)[1]
    parts = re.split(r"^### (.+)$", section.split("\n## ")[0], flags=re.MULTILINE)[1:]
    return {title: Recipe(title, body) for title, body in zip(parts[::2], parts[1::2], strict=True)}
