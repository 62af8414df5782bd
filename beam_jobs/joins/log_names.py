"""Decides which names from a log (custom actions, fields) a manifest may show. Pure: no Beam.

A name can hold personal data: `{"jane@example.com": true}`. A name is shown only if it has the form of a name and
enough records use it.
"""

import re
from collections import Counter
from collections.abc import Collection

OTHER_NAME = "other"  # replaces all names that may not be shown
MIN_RECORDS = 10  # records that must use a name before it is shown
_LOG_CHOSEN_PREFIXES = ("ignored/", "skipped/action_", "skipped/event_")  # prefixes of such names in a tally
LOG_NAME = re.compile(r"[A-Za-z][A-Za-z_-]{0,57}[0-9]?")  # at most one digit, at the end: no address, number or token
LOCALE_NAME = re.compile(r"[a-z]{2,3}(-[a-z]{4})?(-([a-z]{2}|[0-9]{3}))?")  # language, script, region


def has_form(name: str, form: re.Pattern[str] = LOG_NAME) -> bool:
    return form.fullmatch(name) is not None


def without_rare_names(tally: Counter[str], known: Collection[str] = ()) -> Counter[str]:
    """Returns the tally with rare names from the log counted as OTHER_NAME.

    known: full names that may be shown even if rare.
    """
    kept: Counter[str] = Counter()
    for name, count in tally.items():
        rare = count < MIN_RECORDS and name.startswith(_LOG_CHOSEN_PREFIXES) and name not in known
        kept[f"{name.split('/', 1)[0]}/{OTHER_NAME}" if rare else name] += count
    return kept
