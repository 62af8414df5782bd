"""The gateway's settings. Flags say where it listens and what it serves; one YAML file holds everything else.

`make settings` writes docs/settings.md from the fields below. The string in an `Annotated` type is the field's unit.
"""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from features.task import Section, load_yaml, parse
from serving.api_keys import ApiKey, HashedKey
from serving.cpus import available_cpus

CORES = available_cpus().share()  # CPUs that this process may use
WAITING_PER_CORE = 8  # queued requests a CPU
MAX_VERSION_BYTES = 8 << 30  # bytes, all files of a version; default of `reloading.version_bytes`

Seconds = Annotated[float, Field(gt=0), "seconds"]
Port = Annotated[int, Field(ge=0, le=65535), "TCP port"]
Share = Annotated[float, Field(ge=0, le=1), "share"]


class Processes(Section):
    """Processes that share the client port. Each has its own share of the cores, its own queue and its own models."""

    number: Annotated[int, "processes"] = Field(
        default=1, ge=1, description="Number of processes, at most the CPUs that the gateway may use."
    )
    port: Port = Field(default=8100, description="Own port of process 0; process n has `port` + n; 0 takes free ports.")
    start_seconds: Seconds = Field(default=600.0, description="A process whose model is not ready by then is replaced.")
    hung_seconds: Annotated[float, "seconds"] = Field(
        default=30.0, ge=2, description="A ready process that sends no heartbeat for this long is replaced."
    )
    kill_seconds: Seconds = Field(default=5.0, description="Time from SIGTERM to SIGKILL for a process that hangs.")


class RequestLimits(Section):
    """Limits of one request. A request above a limit is refused, never truncated."""

    body_bytes: Annotated[int, "bytes"] = Field(
        default=8 << 20, ge=1024, description="Size of a body; 1,000 titles of 2,048 four-byte characters fit."
    )
    items: Annotated[int, "items"] = Field(
        default=1000, ge=1, description="Items of a request; in a batch, of all its queries together."
    )
    queries: Annotated[int, "queries"] = Field(default=32, ge=1, description="Queries of a batch.")
    context_characters: Annotated[int, "characters"] = Field(
        default=512, ge=1, description="Unicode code points of each text or category of the context, such as the query."
    )
    item_characters: Annotated[int, "characters"] = Field(
        default=2048, ge=1, description="Unicode code points of each text or category of an item, such as the title."
    )
    id_characters: Annotated[int, "characters"] = Field(
        default=256, ge=1, description="Unicode code points of an item's id."
    )


class Connections(Section):
    """Limits of a connection and of receiving a request."""

    most: Annotated[int, "connections"] = Field(
        default=1000, ge=1, description="Open connections; further ones get 503 `overloaded`."
    )
    head_bytes: Annotated[int, "bytes"] = Field(
        default=32 << 10, ge=1024, description="Size of a request line and its headers."
    )
    head_seconds: Seconds = Field(default=10.0, description="Time for the head to arrive.")
    body_seconds: Seconds = Field(default=30.0, description="Time for a body to arrive, and for an answer to be read.")
    bodies: Annotated[int, "bodies"] = Field(default=128, ge=1, description="Bodies received at the same time.")


class Queue(Section):
    """The request queue and its scoring threads."""

    threads: Annotated[int, "threads"] = Field(
        default=CORES,
        ge=1,
        description="Requests scored at the same time.",
        json_schema_extra={"default": "one for each CPU of the process"},
    )
    waiting: Annotated[int, "requests"] = Field(
        default=WAITING_PER_CORE * CORES,
        ge=0,
        description="Requests that wait for a thread; further ones get 503 `overloaded`.",
        json_schema_extra={"default": f"{WAITING_PER_CORE} for each CPU of the process"},
    )
    request_seconds: Seconds = Field(
        default=10.0, description="Longest time of a request; the header `X-Request-Timeout-Ms` may shorten it."
    )


class Batching(Section):
    """Dynamic batching: requests that wait for the model share a call. Needs more `queue.threads` than `calls`."""

    calls: Annotated[int, "model calls"] = Field(
        default=0, ge=0, description="Model calls at the same time; 0 gives each request its own call."
    )
    groups: Annotated[int, "query groups"] = Field(default=8, ge=2, description="Most query groups in a shared call.")


class Reloading(Section):
    """Discovery of new versions in the export directory."""

    every_seconds: Seconds = Field(default=5.0, description="Time between two checks of the export directory.")
    again_seconds: Seconds = Field(
        default=10.0, description="Time until the first retry of a refused version; it doubles up to an hour."
    )
    resident: Annotated[int, "versions"] = Field(
        default=2, ge=1, description="Versions in memory: the one that serves and previous ones."
    )
    version_bytes: Annotated[int, "bytes"] = Field(
        default=MAX_VERSION_BYTES, ge=1 << 20, description="Size of all files of a version; a larger one is refused."
    )


class ShadowSettings(Section):
    """Shadow traffic: another version scores a sample of the requests after they are answered."""

    version: int | Literal["newest"] | None = Field(
        default=None, description="The version in the shadow; `newest`: the highest not refused, unless it serves."
    )
    share: Share = Field(default=0.1, description="Share of the requests that the version in the shadow scores.")
    waiting: Annotated[int, "requests"] = Field(
        default=8, ge=1, description="Requests that wait, with their bodies in memory; further ones are dropped."
    )
    wait_seconds: Seconds = Field(
        default=1.0, description="Time in which a scoring thread must become idle; then the request is dropped."
    )
    top: Annotated[int, "results"] = Field(
        default=10, ge=1, description="Results of an answer that `privrank_shadow_top_overlap` compares."
    )


class LiteRt(Section):
    """The backend `litert`."""

    precision: Literal["auto", "float", "int8"] = Field(
        default="auto", description="Which graphs to run; `auto`: the faster of the exported ones on this machine."
    )
    cache_bytes: Annotated[int, "bytes"] = Field(
        default=256 << 20, ge=1 << 20, description="Size of the cache of tokens and states, for each version in memory."
    )


class TensorFlowServing(Section):
    """The model server of the backend `tf-serving`, called by gRPC."""

    address: str = Field(
        default="", description="`host:port` of its gRPC port; several addresses of a name take turns."
    )
    ca_file: str = Field(
        default="", description="PEM file of the authorities that sign its certificate; empty: no TLS."
    )
    seconds: Seconds = Field(
        default=5.0, description="Longest time of a call; the time left of the request may be shorter."
    )
    retries: Annotated[int, "calls"] = Field(
        default=1, ge=0, description="Retries of a call that did not reach the server, within that time."
    )
    failures: Annotated[int, "calls"] = Field(
        default=5, ge=1, description="Calls in a row without an answer that open the circuit breaker."
    )
    open_seconds: Seconds = Field(
        default=2.0, description="Time for which the circuit breaker stays open; then one call tries."
    )
    message_bytes: Annotated[int, "bytes"] = Field(
        default=32 << 20, ge=1024, description="Size of a message to or from the server."
    )


class TracingSettings(Section):
    """Export of request spans to an OpenTelemetry collector. Without an endpoint, tracing is off."""

    endpoint: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="URL of the collector, OTLP over HTTP: `http://host:4318/v1/traces`.",
    )
    service: str = Field(default="privrank", description="The resource attribute `service.name`.")
    share_of_new: Share = Field(default=0.0, description="Share of the traces that begin here which are recorded.")
    waiting: Annotated[int, "requests"] = Field(
        default=1000, ge=1, description="Requests that wait for export; further ones are dropped."
    )
    every_seconds: Seconds = Field(default=1.0, description="Time between two exports.")
    timeout_seconds: Seconds = Field(default=5.0, description="Longest time of an export call.")


class Admin(Section):
    """The admin port. It is closed if no key has the role admin."""

    host: str = Field(default="127.0.0.1", description="Address to bind.")
    port: Port = Field(default=8001, description="Port of the administration, of process 0; 0 takes a free one.")
    keys: tuple[HashedKey, ...] = Field(
        default=(), description="Keys for this port alone; a key of `api_keys` with the role admin works too."
    )


class Settings(Section):
    """All settings of a gateway process."""

    # from flags
    export_dir: str = Field(description="Directory that holds the versions; any path that `tf.io.gfile` reads.")
    host: str = Field(default="127.0.0.1", description="Address to bind.")
    port: Port = Field(default=8000, description="Port of the clients; 0 takes a free one and prints it.")
    allow_unauthenticated: bool = Field(
        default=False, description="Permits a `host` that other machines reach while `api_keys` is empty."
    )

    # from the settings file
    api_keys: tuple[ApiKey, ...] = Field(default=(), description="Keys of the clients; empty: no authentication.")
    pages: Literal["open", "key", "off"] = Field(
        default="open", description="Access to `/`, `/docs` and `/openapi.json`; `key`: with a key of the role rank."
    )
    backend: str = Field(default="embedded", description="What scores: `embedded`, `litert` or `tf-serving`.")
    drain_seconds: Annotated[float, "seconds"] = Field(
        default=2.0, ge=0, description="Time after SIGTERM in which the gateway still answers but is not ready."
    )
    finish_seconds: Annotated[int, "seconds"] = Field(
        default=30, ge=1, description="Time after that in which requests in flight may finish."
    )
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


SETTINGS_OF_FLAGS = ("export_dir", "host", "port", "allow_unauthenticated")
_BY_FILE = tuple(name for name in Settings.model_fields if name not in SETTINGS_OF_FLAGS)


def settings_of(flags: dict[str, object], path: str | None) -> Settings:
    """Merges the flags with the settings file at `path`, if given. Errors: InputError."""
    from_file = load_yaml(path, "settings file", _BY_FILE) if path is not None else {}
    return parse({**from_file, **flags}, "serving", Settings, "the settings file")
