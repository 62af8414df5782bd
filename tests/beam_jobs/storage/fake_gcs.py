"""An object store on loopback that speaks as much of Google Cloud Storage's JSON API as its Python client uses.

No directories, no renames; generations and their preconditions. `freeze_after(n)` is a crash: the n-th change of an
object is the last, and everything after it is refused, so that the client can neither go on nor clean up.
"""

import base64
import email
import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c


class Answer(NamedTuple):
    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()


class Refused(Exception):
    """An answer that is an error."""


class FakeGcs:
    """objects: content by 'bucket/name'. changes: what was written or deleted, in order."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.generations: dict[str, int] = {}
        self.changes: list[str] = []
        self.before_change: Any = None  # called with the change, under no lock
        self._left: int | None = None
        self._crashed = False
        self._numbers = itertools.count(1)
        self._uploads: dict[str, tuple[str, dict[str, str], bytearray]] = {}
        self._lock = threading.Lock()

    def freeze_after(self, changes: int | None) -> None:
        """The changes that are still made; None: all."""
        self._left, self._crashed = changes, False

    def below(self, prefix: str) -> dict[str, bytes]:
        return {
            name.removeprefix(prefix): self.objects[name] for name in sorted(self.objects) if name.startswith(prefix)
        }

    def answer(self, method: str, url: str, headers: Any, body: bytes) -> Answer:
        path, query = urlsplit(url).path, {k: v[0] for k, v in parse_qs(urlsplit(url).query).items()}
        if self._crashed:
            return Answer(403)
        try:
            if path == "/batch/storage/v1":
                return self._batch(headers, body)
            if path.startswith("/upload"):
                return self._upload(method, path, query, headers, body)
            return self._object(method, path, query, headers)
        except Refused as refused:
            return Answer(int(str(refused)))

    def _object(self, method: str, path: str, query: dict[str, str], headers: Any) -> Answer:
        found = re.fullmatch(r"(?:/download)?/storage/v1/b/([^/]+)/o(?:/([^/]+))?(?:/rewriteTo/b/([^/]+)/o/([^/]+)|"
                             r"/copyTo/b/([^/]+)/o/([^/]+))?", path)  # fmt: skip
        if found is None:
            raise Refused("404")
        bucket, name = found[1], unquote(found[2] or "")
        key = f"{bucket}/{name}"
        if not name:
            return self._listing(bucket, query)
        if found[3] or found[5]:
            target = f"{found[3] or found[5]}/{unquote(found[4] or found[6])}"
            resource = self._put(target, self._get(key), query)
            rewritten = {"kind": "storage#rewriteResponse", "done": True, "resource": resource}
            return _json(rewritten if found[3] else resource)
        if method == "DELETE":
            self._get(key)
            self._change(f"delete {key}", lambda: (self.objects.pop(key, None), self.generations.pop(key, None)))
            return Answer(204, b"")
        content = self._get(key)
        self._check(key, query)
        if query.get("alt") == "media":
            return _ranged(content, headers.get("Range", ""), self.generations[key])
        return _json(self._resource(key))

    def _listing(self, bucket: str, query: dict[str, str]) -> Answer:
        prefix = f"{bucket}/{query.get('prefix', '')}"
        names = [name for name in sorted(self.objects) if name.startswith(prefix)]
        return _json({"kind": "storage#objects", "items": [self._resource(name) for name in names]})

    def _upload(self, method: str, path: str, query: dict[str, str], headers: Any, body: bytes) -> Answer:
        bucket = path.split("/")[5]
        if method == "PUT":
            return self._resumed(query["upload_id"], headers, body)
        if query["uploadType"] == "multipart":
            boundary = re.search(rb'boundary="?([^";]+)"?', headers["Content-Type"].encode())
            assert boundary is not None
            head, _, rest = body.partition(b"\r\n\r\n")[2].partition(b"\r\n--" + boundary[1])
            content = rest.partition(b"\r\n\r\n")[2].rpartition(b"\r\n--" + boundary[1])[0]
            return _json(self._put(f"{bucket}/{json.loads(head)['name']}", content, query))
        name = query.get("name") or json.loads(body)["name"]
        session = str(next(self._numbers))
        self._uploads[session] = (f"{bucket}/{name}", query, bytearray())
        location = f"http://{headers['Host']}{path}?uploadType=resumable&upload_id={session}"
        return Answer(200, b"{}", (("Location", location),))

    def _resumed(self, session: str, headers: Any, body: bytes) -> Answer:
        key, query, content = self._uploads[session]
        content += body
        if headers["Content-Range"].endswith("/*"):
            return Answer(308, b"", (("Range", f"bytes=0-{len(content) - 1}"),))
        return _json(self._put(key, bytes(content), query))

    def _batch(self, headers: Any, body: bytes) -> Answer:
        message: Any = email.message_from_bytes(
            b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body
        )
        parts = []
        for part in message.get_payload():
            request = part.get_payload(decode=True) or str(part.get_payload()).encode()
            method, url = request.split(b"\r\n")[0].split(b"\n")[0].decode().split(" ")[:2]
            done = self.answer(method, url, {}, b"")
            text = f"HTTP/1.1 {done.status} X\r\nContent-Type: application/json\r\n\r\n".encode() + done.body
            parts.append(b"--b\r\nContent-Type: application/http\r\n\r\n" + text + b"\r\n")
        return Answer(200, b"".join(parts) + b"--b--", (("Content-Type", 'multipart/mixed; boundary="b"'),))

    def _put(self, key: str, content: bytes, query: dict[str, str]) -> dict[str, Any]:
        def put() -> None:
            self._check(key, query)
            self.objects[key], self.generations[key] = content, next(self._numbers)

        self._change(f"write {key}", put)
        return self._resource(key)

    def _change(self, what: str, make: Any) -> None:
        if self.before_change is not None:
            self.before_change(what)
        with self._lock:
            if self._left is not None:
                if self._left <= 0:
                    self._crashed = True
                    raise Refused("403")
                self._left -= 1
            make()
            self.changes.append(what)

    def _check(self, key: str, query: dict[str, str]) -> None:
        wanted = query.get("ifGenerationMatch")
        if wanted is not None and int(wanted) != self.generations.get(key, 0):
            raise Refused("412")

    def _get(self, key: str) -> bytes:
        if key not in self.objects:
            raise Refused("404")
        return self.objects[key]

    def _resource(self, key: str) -> dict[str, Any]:
        bucket, _, name = key.partition("/")
        content = self.objects[key]
        crc = base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()
        return {
            "kind": "storage#object",
            "bucket": bucket,
            "name": name,
            "size": str(len(content)),
            "crc32c": crc,
            "generation": str(self.generations[key]),
            "updated": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        }


def _json(content: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(content).encode(), (("Content-Type", "application/json"),))


def _ranged(content: bytes, asked: str, generation: int) -> Answer:
    told = (("X-Goog-Generation", str(generation)), ("Content-Type", "application/octet-stream"))
    found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
    if found is None:
        return Answer(200, content, told)
    start, end = int(found[1]), min(int(found[2] or len(content)), len(content) - 1)
    if start >= len(content):
        return Answer(416)
    return Answer(206, content[start : end + 1], (*told, ("Content-Range", f"bytes {start}-{end}/{len(content)}")))


@contextmanager
def serving(store: FakeGcs) -> Iterator[str]:
    """The store's address while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = store.answer(self.command, self.path, self.headers, body)
            self.send_response(answer.status)
            for name, value in (*answer.headers, ("Content-Length", str(len(answer.body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = do_DELETE = _handle

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
