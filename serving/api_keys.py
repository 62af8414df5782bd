"""API keys and their roles. Settings hold hashes only; several keys may be valid at once, so that keys can be rotated.

To create a key: `python -m serving.api_keys --name shop-2026 --role rank`.
"""

import argparse
import base64
import binascii
import hashlib
import hmac
import re
import secrets
import sys
from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import Field

from features.errors import InputError, exit_code_of
from features.task import Section
from serving.problems import Problem

_KEY_BYTES = 32  # random bytes in a key; a hash of that much randomness needs neither salt nor stretching
_KEY_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

KeyRole = Literal["rank", "metrics", "admin"]
"""rank: ranking and model metadata. metrics: `/metrics`. admin: the admin port."""
_KEY_ROLES: tuple[KeyRole, ...] = get_args(KeyRole)


class HashedKey(Section):
    """A key, stored as its hash."""

    name: str = Field(pattern=f"^{_KEY_NAME}$", description="Label of the key in the log and at `/metrics`.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the key's UTF-8 bytes, in hexadecimal.")


class ApiKey(HashedKey):
    """A key and its roles. The default keeps settings files valid that were written before keys had roles."""

    roles: tuple[KeyRole, ...] = Field(
        default=("rank", "metrics"), min_length=1, description="What the key allows, at least one role."
    )


def authenticate(secret: str, keys: Sequence[ApiKey], challenge: str = "Bearer") -> list[ApiKey]:
    """Returns the settings' entries of this key, at least one.

    Compares every key in constant time, so that the duration reveals nothing about the keys.
    challenge: value of the WWW-Authenticate header. Errors: Problem unauthorized.
    """
    digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
    matching = [key for key in keys if hmac.compare_digest(digest, key.sha256)]
    if not secret or not matching:
        reason = "the API key is not known" if secret else "no API key was sent"
        detail = f"{reason}, expected one in the header Authorization: Bearer <key>"
        raise Problem("unauthorized", detail, headers={"WWW-Authenticate": challenge})
    return matching


def require_role(role: KeyRole, entries: Sequence[ApiKey]) -> None:
    """Errors: Problem forbidden if none of the key's entries has the role."""
    roles = {role for key in entries for role in key.roles}
    if role not in roles:
        detail = f"the API key has the roles {', '.join(sorted(roles))}; this path needs `{role}`"
        raise Problem("forbidden", f"{detail}: use another key, or have the operator add the role")


def bearer_secret(authorization: str) -> str:
    """Returns the key of a header `Authorization: Bearer <key>`, or an empty string."""
    scheme, _, secret = authorization.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def page_secret(authorization: str) -> str:
    """Like `bearer_secret`, but also accepts the password of HTTP Basic, which browsers can prompt for.

    Ignores the user name.
    """
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return bearer_secret(authorization)
    try:
        return base64.b64decode(encoded.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def new_key() -> tuple[str, str]:
    """Returns a random key and its SHA-256."""
    key = secrets.token_urlsafe(_KEY_BYTES)
    return key, hashlib.sha256(key.encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m serving.api_keys",
        description="Creates an API key. Prints the key once, and the line with its hash for the settings file.",
        epilog="example: python -m serving.api_keys --name shop-2026 --role rank",
    )
    parser.add_argument("--name", required=True, help="label of the key in the log and at /metrics")
    parser.add_argument(
        "--role",
        action="append",
        choices=_KEY_ROLES,
        help="role of the key (default: rank); repeatable",
    )
    given = parser.parse_args()
    name, roles = given.name, list(dict.fromkeys(given.role or ["rank"]))
    if not re.fullmatch(_KEY_NAME, name):
        raise InputError(f"--name is {name!r}, expected 1 to 64 letters, digits or ._-, no sign first")
    key, digest = new_key()
    print(f"key for the client (printed only once):\n  {key}")
    line = f"{{name: {name}, sha256: {digest}, roles: [{', '.join(roles)}]}}"
    print(f"line for api_keys in the settings file:\n  - {line}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
