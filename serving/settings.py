"""The gateway's settings. Flags say where it listens and what it serves; one YAML file holds everything else."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from features.task import Section, load_yaml, parse
from serving.api_keys import ApiKey, HashedKey
from serving.cpus import available_cpus

CORES = available_cpus().share()  # CPUs that this process may use
WAITING_PER_CORE = 8  # queued requests a CPU
MAX_VERSION_BYTES = 8 << 30  # bytes, all files of a version; default of `reloading.version_bytes`


class Processes(Section):
    """Processes that share the client port. Each has its own share of the cores, its own queue and its own models."""

    number: int = Field(default=1, ge=1)  # at most the cores
    port: int = Field(default=8100, ge=0, le=65535)  # process 0's own port, with its /metrics; 0: free ones
    start_seconds: float = Field(default=600.0, gt=0)  # limit from a process's start until its model is ready
    hung_seconds: float = Field(default=30.0, ge=2)  # a ready process without a heartbeat is replaced after this
    kill_seconds: float = Field(default=5.0, gt=0)  # from SIGTERM to SIGKILL


class RequestLimits(Section):
    """Limits of one request. A request above a limit is refused, never truncated."""

    body_bytes: int = Field(default=8 << 20, ge=1024)  # bytes; 1,000 titles of 2,048 four-byte characters fit
    items: int = Field(default=1000, ge=1)  # items of a request, summed over the queries of a batch
    queries: int = Field(default=32, ge=1)  # queries a batch
    context_characters: int = Field(default=512, ge=1)  # characters (Unicode code points) of a query
    item_characters: int = Field(default=2048, ge=1)  # characters of a title
    id_characters: int = Field(default=256, ge=1)  # characters of an item's id


class Connections(Section):
    """Limits of a connection and of receiving a request."""

    most: int = Field(default=1000, ge=1)  # open connections
    head_bytes: int = Field(default=32 << 10, ge=1024)  # bytes of a request line and its headers
    head_seconds: float = Field(default=10.0, gt=0)  # seconds for the head to arrive
    body_seconds: float = Field(default=30.0, gt=0)  # seconds for a body to arrive, and for a response to be read
    bodies: int = Field(default=128, ge=1)  # bodies received concurrently


class Queue(Section):
    """The request queue and its scoring threads."""

    threads: int = Field(default=CORES, ge=1)  # requests scored concurrently
    waiting: int = Field(default=WAITING_PER_CORE * CORES, ge=0)  # queued requests, on top of those
    request_seconds: float = Field(default=10.0, gt=0)  # limit of a request; X-Request-Timeout-Ms may shorten it


class Batching(Section):
    """Dynamic batching: requests that wait for the model share a call. Needs more `queue.threads` than `calls`."""

    calls: int = Field(default=0, ge=0)  # concurrent model calls; 0: no batching, a call for each request
    groups: int = Field(default=8, ge=2)  # maximum query groups in a shared call


class Reloading(Section):
    """Discovery of new versions in the export directory."""

    every_seconds: float = Field(default=5.0, gt=0)  # polling interval
    again_seconds: float = Field(default=10.0, gt=0)  # first retry of a refused version; doubles, up to an hour
    resident: int = Field(default=2, ge=1)  # versions in memory: the serving one and previous ones
    version_bytes: int = Field(default=MAX_VERSION_BYTES, ge=1 << 20)  # bytes of a version's files


class ShadowSettings(Section):
    """Shadow traffic: another version scores a sample of the requests after they are answered."""

    version: int | Literal["newest"] | None = None  # newest: the highest not refused, unless it serves
    share: float = Field(default=0.1, ge=0, le=1)  # of the requests
    waiting: int = Field(default=8, ge=1)  # queued requests, bodies included; more are dropped
    wait_seconds: float = Field(default=1.0, gt=0)  # for an idle scoring thread; then the request is dropped
    top: int = Field(default=10, ge=1)  # k of the reported overlap of the top k results


class LiteRt(Section):
    """The backend `litert`."""

    precision: Literal["auto", "float", "int8"] = "auto"  # auto: the faster exported one on this machine
    cache_bytes: int = Field(default=256 << 20, ge=1 << 20)  # bytes of a version's cache of tokens and states


class TensorFlowServing(Section):
    """The model server of the backend `tf-serving`, called by gRPC."""

    address: str = ""  # host:port; several addresses of a name are used round-robin
    ca_file: str = ""  # PEM file of the CA of its certificate; empty: no TLS
    seconds: float = Field(default=5.0, gt=0)  # limit of a call; the request's remaining time may be shorter
    retries: int = Field(default=1, ge=0)  # retries of a call that did not reach it, within that limit
    failures: int = Field(default=5, ge=1)  # consecutive failed calls that open the circuit breaker
    open_seconds: float = Field(default=2.0, gt=0)  # the circuit breaker stays open this long; then one call probes
    message_bytes: int = Field(default=32 << 20, ge=1024)  # bytes of a request or a response


class TracingSettings(Section):
    """Export of request spans to an OpenTelemetry collector. Without an endpoint, tracing is off."""

    endpoint: str = Field(default="", pattern=r"^(https?://\S+)?$")  # OTLP over HTTP: http://host:4318/v1/traces
    service: str = "privrank"  # `service.name`
    share_of_new: float = Field(default=0.0, ge=0, le=1)  # sampling rate of traces that begin here
    waiting: int = Field(default=1000, ge=1)  # requests queued for export; more are dropped
    every_seconds: float = Field(default=1.0, gt=0)  # export interval
    timeout_seconds: float = Field(default=5.0, gt=0)  # of one export call


class Admin(Section):
    """The admin port. It is closed if no key has the role admin."""

    host: str = "127.0.0.1"
    port: int = Field(default=8001, ge=0, le=65535)  # TCP port; 0 takes a free one and prints it
    keys: tuple[HashedKey, ...] = ()  # keys for this port only; or give a key of `api_keys` the role admin


class Settings(Section):
    """All settings of a gateway process."""

    # from flags
    export_dir: str  # holds the version directories; any path of tf.io.gfile
    host: str = "127.0.0.1"  # address to bind
    port: int = Field(default=8000, ge=0, le=65535)  # TCP port; 0 takes a free one and prints it
    allow_unauthenticated: bool = False  # permit a non-loopback host without api_keys

    # from the settings file
    api_keys: tuple[ApiKey, ...] = ()  # empty: no authentication
    pages: Literal["open", "key", "off"] = "open"  # access to /, /docs, /openapi.json; key: role rank needed
    backend: str = "embedded"  # a key of serving.backends.registry.BACKENDS
    drain_seconds: float = Field(default=2.0, ge=0)  # after SIGTERM: seconds of answering while not ready
    finish_seconds: int = Field(default=30, ge=1)  # after that: seconds for requests in flight to finish
    processes: Processes = Processes()
    limits: RequestLimits = RequestLimits()
    connections: Connections = Connections()
    queue: Queue = Queue()
    batching: Batching = Batching()
    reloading: Reloading = Reloading()
    shadow: ShadowSettings = ShadowSettings()
    litert: LiteRt = LiteRt()
    tf_serving: TensorFlowServing = TensorFlowServing()
    tracing: TracingSettings = TracingSettings()
    admin: Admin = Admin()

    @field_validator("api_keys")
    @classmethod
    def _check_rank_role(cls, keys: tuple[ApiKey, ...]) -> tuple[ApiKey, ...]:
        if keys and not any("rank" in key.roles for key in keys):
            raise ValueError("none has the role rank, so no client could rank; give it to one, or remove api_keys")
        return keys

    @field_validator("pages")
    @classmethod
    def _check_page_keys(cls, pages: str, others: ValidationInfo) -> str:
        if pages == "key" and not others.data.get("api_keys"):
            raise ValueError("there are no api_keys that could open the pages; add one, or set open or off")
        return pages

    @property
    def admin_keys(self) -> tuple[ApiKey, ...]:
        """The keys that the admin port accepts."""
        own = (ApiKey(name=key.name, sha256=key.sha256, roles=("admin",)) for key in self.admin.keys)
        return (*(key for key in self.api_keys if "admin" in key.roles), *own)


_BY_FLAG = ("export_dir", "host", "port", "allow_unauthenticated")
_BY_FILE = tuple(name for name in Settings.model_fields if name not in _BY_FLAG)


def settings_of(flags: dict[str, object], path: str | None) -> Settings:
    """Merges the flags with the settings file at `path`, if given. Errors: InputError."""
    from_file = load_yaml(path, "settings file", _BY_FILE) if path is not None else {}
    return parse({**from_file, **flags}, "serving", Settings, "the settings file")
