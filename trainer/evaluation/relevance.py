"""True relevance of items for queries, which only evaluation reads."""

import csv
import gzip

from features.errors import InputError
from trainer.storage.stages import published_path, read_file


def read_relevance(path: str) -> dict[tuple[str, str], float]:
    """True relevance by (query, item_id) from a TSV, gzipped if its name says so. Errors: InputError with the line."""
    remedy = "give --relevance a TSV with the columns query, item_id, relevance, or leave it out"
    content = read_file(published_path(path), remedy)
    try:
        text = (gzip.decompress(content) if path.endswith(".gz") else content).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} ({error}): {remedy}") from None
    rows = csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = next(rows, [])
    missing = {"query", "item_id", "relevance"} - set(header)
    if missing:
        raise InputError(f"{path} has the columns {header}, without {sorted(missing)}: {remedy}")
    query, item, grade = (header.index(name) for name in ("query", "item_id", "relevance"))
    relevance = {}
    for number, row in enumerate(rows, start=2):
        try:
            relevance[row[query], row[item]] = float(row[grade])
        except (IndexError, ValueError):
            raise InputError(f"{path}, line {number}: {row} holds no number for relevance: {remedy}") from None
    return relevance
