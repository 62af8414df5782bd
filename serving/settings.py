"""What an operator may set about the gateway: where it is, by flags; everything else in one settings file."""

import os
from typing import Literal

from pydantic import Field

from features.task import Section, load_yaml, parse
from serving.keys import ApiKey

CORES = len(os.sched_getaffinity(0))  # that this process may use


class Processes(Section):
    """Processes behind the clients' port, each with its share of the cores, a line and models of its own."""

    number: int = Field(default=1, ge=1)  # at most the cores
    port: int = Field(default=8100, ge=0, le=65535)  # of several, the first's own, with its /metrics; 0 takes free ones


class RequestLimits(Section):
    """What one request may hold. A request beyond a limit is refused whole, never cut."""

    body_bytes: int = Field(default=8 << 20, ge=1024)  # bytes; 1,000 titles of 2,048 four-byte characters fit
    items: int = Field(default=1000, ge=1)  # items a request, all queries of a batch together
    queries: int = Field(default=32, ge=1)  # queries a batch
    context_characters: int = Field(default=512, ge=1)  # characters (Unicode code points) of a query
    item_characters: int = Field(default=2048, ge=1)  # characters of a title
    id_characters: int = Field(default=256, ge=1)  # characters of an item's id


class Connections(Section):
    """What a client may take before it has a request that can be answered."""

    most: int = Field(default=1000, ge=1)  # connections at the same time
    head_bytes: int = Field(default=32 << 10, ge=1024)  # bytes of a request line and its headers
    head_seconds: float = Field(default=10.0, gt=0)  # seconds in which they must have arrived
    body_seconds: float = Field(default=30.0, gt=0)  # seconds for a body to arrive, and for an answer to be taken
    bodies: int = Field(default=128, ge=1)  # bodies that may be arriving at the same time


class Queue(Section):
    """Requests that have arrived and wait to be scored."""

    threads: int = Field(default=CORES, ge=1)  # requests scored at the same time
    waiting: int = Field(default=8 * CORES, ge=0)  # requests beyond those: each adds to the wait of all behind it
    request_seconds: float = Field(default=10.0, gt=0)  # a request's longest time; X-Request-Timeout-Ms may shorten it


class Batching(Section):
    """Requests that wait for the model are scored in one call. It needs more `queue.threads` than `calls`."""

    calls: int = Field(default=0, ge=0)  # of the model at the same time; 0: each request has its own at once
    groups: int = Field(default=8, ge=2)  # query groups in a call of several requests, at most


class Reloading(Section):
    """How new versions in the export directory are found."""

    every_seconds: float = Field(default=5.0, gt=0)  # between two looks at the directory
    again_seconds: float = Field(default=10.0, gt=0)  # until a refused version is tried again; doubles, up to an hour
    resident: int = Field(default=2, ge=1)  # versions held in memory: the one that serves and those before it


class Shadow(Section):
    """A version that scores a sample of the requests again, after their answers: how would it rank?"""

    version: int | Literal["newest"] | None = None  # newest: the highest that is not refused, where another one serves
    share: float = Field(default=0.1, ge=0, le=1)  # of the requests
    waiting: int = Field(default=8, ge=1)  # requests, with their bodies, that wait for it; those beyond are dropped
    wait_seconds: float = Field(default=1.0, gt=0)  # for an idle scoring thread, until a request is dropped
    top: int = Field(default=10, ge=1)  # the first results of an answer, whose overlap is told


class LiteRt(Section):
    """The backend `litert`."""

    precision: Literal["auto", "float", "int8"] = "auto"  # auto: of those that the export kept, the faster one here
    kept_bytes: int = Field(default=256 << 20, ge=1 << 20)  # bytes of texts' tokens and states, for each version


class TensorFlowServing(Section):
    """The model server of the backend `tf-serving`, spoken to by gRPC."""

    address: str = ""  # host:port; a name of several addresses is asked in turn
    ca_file: str = ""  # PEM of who signed its certificate: TLS; without, it is spoken to in plain
    seconds: float = Field(default=5.0, gt=0)  # a call's longest time; what is left of the request's may be shorter
    retries: int = Field(default=1, ge=0)  # of a call that did not reach it, within that time
    failures: int = Field(default=5, ge=1)  # calls in a row without an answer, until nobody asks for a while
    open_seconds: float = Field(default=2.0, gt=0)  # for so long; then one call tries
    message_bytes: int = Field(default=32 << 20, ge=1024)  # bytes of a request or an answer


class Tracing(Section):
    """Spans of requests, told to an OpenTelemetry collector; there are none without an endpoint."""

    endpoint: str = Field(default="", pattern=r"^(https?://\S+)?$")  # takes OTLP over HTTP: http://host:4318/v1/traces
    service: str = "privrank"  # `service.name`
    share_of_new: float = Field(default=0.0, ge=0, le=1)  # of the traces that begin here, how many are recorded
    waiting: int = Field(default=1000, ge=1)  # requests whose spans wait to be told; those beyond are not told
    every_seconds: float = Field(default=1.0, gt=0)  # between two tellings
    timeout_seconds: float = Field(default=5.0, gt=0)  # that the collector has to take one


class Admin(Section):
    """The administration's own port; there is none without a key."""

    host: str = "127.0.0.1"
    port: int = Field(default=8001, ge=0, le=65535)  # TCP port; 0 takes a free one and prints it
    keys: tuple[ApiKey, ...] = ()


class Settings(Section):
    """One gateway process."""

    # by flags
    export_dir: str  # the directory of version directories; whatever tf.io.gfile opens
    host: str = "127.0.0.1"  # address to bind
    port: int = Field(default=8000, ge=0, le=65535)  # TCP port; 0 takes a free one and prints it
    without_keys: bool = False  # bind to another address than loopback's although anyone may ask

    # by the file
    api_keys: tuple[ApiKey, ...] = ()  # who may ask; without any, whoever reaches the port
    backend: str = "embedded"  # a key of serving.backends.BACKENDS
    drain_seconds: float = Field(default=2.0, ge=0)  # after SIGTERM: seconds not ready, but still answering
    finish_seconds: int = Field(default=30, ge=1)  # then: seconds that requests in flight have to finish
    processes: Processes = Processes()
    limits: RequestLimits = RequestLimits()
    connections: Connections = Connections()
    queue: Queue = Queue()
    batching: Batching = Batching()
    reloading: Reloading = Reloading()
    shadow: Shadow = Shadow()
    litert: LiteRt = LiteRt()
    tf_serving: TensorFlowServing = TensorFlowServing()
    tracing: Tracing = Tracing()
    admin: Admin = Admin()


BY_FLAG = ("export_dir", "host", "port", "without_keys")
BY_FILE = tuple(name for name in Settings.model_fields if name not in BY_FLAG)


def settings_of(flags: dict[str, object], path: str | None) -> Settings:
    """The flags' and the file's settings; `path` None: defaults. Errors: InputError."""
    of_file = load_yaml(path, "settings file", BY_FILE) if path is not None else {}
    return parse({**of_file, **flags}, "serving", Settings, "the settings file")
