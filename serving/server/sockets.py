"""The sockets that the gateway listens on."""

import ipaddress
import socket
from typing import NamedTuple

from features.errors import InputError
from serving.settings import Settings

_BACKLOG = 2048  # pending connections


class Listeners(NamedTuple):
    """The sockets of one process.

    clients: the client port, shared by several processes. own: the port of this process alone. admin: the admin port.
    """

    clients: socket.socket
    own: socket.socket | None = None
    admin: socket.socket | None = None


def listen_for_admin(settings: Settings, process: int = 0) -> socket.socket | None:
    """Opens the admin socket of a process; None if no key has the role admin. Errors: InputError."""
    return listen(settings.admin.host, port_for(process, settings.admin.port)) if settings.admin_keys else None


def port_for(process: int, first: int) -> int:
    """Returns the port of process number `process`; `first` is the port of process 0, and 0 means any free port."""
    return first + process if first else 0


def listen(host: str, port: int) -> socket.socket:
    """Opens a listening socket. From then on, connections are queued rather than refused. Errors: InputError."""
    listener = bind(host, port)
    listener.listen(_BACKLOG)
    return listener


def bind(host: str, port: int, shared: bool = False) -> socket.socket:
    """Binds a socket that does not listen yet. Errors: InputError.

    shared: sets SO_REUSEPORT. Several processes may then bind the port, and the kernel distributes connections at
    random. With one socket inherited by all, the first process to wake up would accept every connection of a burst.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError as error:
        message = f"cannot listen on {host} port {port}: {error.strerror}"
        raise InputError(f"{message}. Choose another port (0: a free one) or an own address") from None
    return listener


def check_authentication(settings: Settings) -> None:
    """Errors: InputError if other machines can connect, no API key is set and this was not explicitly allowed."""
    if settings.api_keys or settings.allow_unauthenticated:
        return
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(settings.host, None)}
    except OSError:
        return  # `listen` reports the error
    if not all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses):
        raise InputError(
            f"--host is {settings.host}, which other machines can reach, and no API key is set; expected api_keys in "
            "the --settings file (python -m serving.api_keys makes one). To serve without authentication, give "
            "--allow-unauthenticated; to serve this machine only, --host 127.0.0.1"
        )


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
