"""Bodies as large as a gateway takes, each of a kind that once cost minutes or gigabytes to refuse."""

from collections.abc import Callable

LARGEST = 8 << 20  # bytes; `limits.body_bytes` as it is by default


def filled(head: bytes, repeated: bytes, tail: bytes, size: int = LARGEST) -> bytes:
    """`repeated` between `head` and `tail`, as often as `size` bytes allow."""
    return head + repeated * ((size - len(head) - len(tail)) // len(repeated)) + tail


def keys(count: int) -> bytes:
    return b",".join(b'"%x":0' % number for number in range(count))


HEAD = b'{"query":"a","items":["b"],'
KINDS: dict[str, Callable[[], bytes]] = {
    "repeated key last": lambda: HEAD + keys(800_000) + b',"b98bf":0}',
    "repeated key first": lambda: HEAD + b'"b98bf":0,' + keys(800_000) + b"}",
    "800,000 keys": lambda: HEAD + keys(800_000) + b"}",
    "keys in an item": lambda: b'{"query":"a","items":[{"title":"b",' + keys(800_000) + b"}]}",
    "deep wide list": lambda: filled(HEAD + b'"x":' + b"[" * 900, b"0,", b"0" + b"]" * 900 + b"}"),
    "deep wide query": lambda: filled(b'{"items":["b"],"query":' + b"[" * 900, b"0,", b"0" + b"]" * 900 + b"}"),
    "wide list of lists": lambda: filled(HEAD + b'"x":[', b"[0],", b"[0]]}"),
    "lists as items": lambda: filled(b'{"query":"a","items":[', b"[],", b"[]]}"),
    "objects as items": lambda: filled(b'{"query":"a","items":[', b"{},", b"{}]}"),
    "2 million items": lambda: filled(b'{"query":"a","items":[', b'"b",', b'"b"]}'),
    "a key of U+FDFA": lambda: filled(HEAD + b'"', "\ufdfa".encode(), b'":0}'),
    "keys of U+FDFA": lambda: filled(HEAD, b'"%b":0,' % ("\ufdfa" * 20).encode(), b'"x":0}'),
    "a title of U+FDFA": lambda: filled(b'{"query":"a","items":["', "\ufdfa".encode(), b'"]}'),
    "a number of 8 million digits": lambda: filled(HEAD + b'"top_n":', b"9", b"}"),
    "a fraction of 8 million digits": lambda: filled(HEAD + b'"top_n":0.', b"1", b"}"),
    "numbers of 4,000 digits": lambda: filled(
        b'{"query":"a","items":[', b'{"title":%b},' % (b"9" * 4000), b'{"title":9}]}'
    ),
    "4 million escapes": lambda: filled(b'{"items":["b"],"query":"', b"\\n", b'"}'),
    "lone surrogates": lambda: filled(b'{"items":["b"],"query":"', b"\\ud800", b'"}'),
    "a model version behind lists": lambda: filled(HEAD + b'"x":[', b"[],", b'[]],"model_version":1}'),
}
