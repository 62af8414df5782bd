"""API keys: several at once, so that a new one can come before an old one goes. Settings hold hashes only.

`python -m serving.keys --name shop-2026` makes one.
"""

import argparse
import hashlib
import hmac
import re
import secrets
import sys
from collections.abc import Sequence

from pydantic import Field

from features.errors import InputError, exit_code_of
from features.task import Section
from serving.problems import Problem

BYTES = 32  # of randomness in a key: too many to guess, so its hash needs neither salt nor stretching
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class ApiKey(Section):
    """A key that may ask. name: what the log and /metrics call it."""

    name: str = Field(pattern=f"^{NAME}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")  # of the key's UTF-8 bytes


def name_of(authorization: str, keys: Sequence[ApiKey]) -> str:
    """The name of the key in an Authorization header.

    Every key is compared, each in constant time: how long it takes tells nothing of any of them.
    Errors: Problem unauthorized.
    """
    scheme, _, given = authorization.partition(" ")
    digest = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).hexdigest()
    matching = [key.name for key in keys if hmac.compare_digest(digest, key.sha256)]
    if scheme.lower() != "bearer" or not matching:
        found = "no API key was sent" if not given.strip() else "the API key is not known"
        told = f"{found}, expected one in the header Authorization: Bearer <key>"
        raise Problem("unauthorized", told, headers={"WWW-Authenticate": "Bearer"})
    return matching[0]


def new_key() -> tuple[str, str]:
    """A key and its SHA-256."""
    key = secrets.token_urlsafe(BYTES)
    return key, hashlib.sha256(key.encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m serving.keys",
        description="Makes an API key: shows it once, with the line for the settings file, which holds its hash only.",
        epilog="example: python -m serving.keys --name shop-2026",
    )
    parser.add_argument("--name", required=True, help="what the log and /metrics call the key")
    name = parser.parse_args().name
    if not re.fullmatch(NAME, name):
        raise InputError(f"--name is {name!r}, expected letters, digits and ._- (64 at most), no sign first")
    key, digest = new_key()
    print(f"key, for the client, shown only now:\n  {key}")
    print(f"line for api_keys in the settings file:\n  - {{name: {name}, sha256: {digest}}}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
