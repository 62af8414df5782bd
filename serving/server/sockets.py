"""The sockets that the gateway listens on, and who can reach them."""

import ipaddress
import socket
from typing import NamedTuple

from features.errors import InputError
from serving.settings import Settings

BACKLOG = 2048  # connections that wait to be accepted


class Doors(NamedTuple):
    """The sockets of one process. own: that no other of several processes has."""

    clients: socket.socket
    own: socket.socket | None = None
    admin: socket.socket | None = None


def listen_for_admin(settings: Settings, process: int = 0) -> socket.socket | None:
    """The administration's socket of a process, where there is one. Errors: InputError."""
    return listen(settings.admin.host, port_for(process, settings.admin.port)) if settings.admin.keys else None


def port_for(process: int, first: int) -> int:
    """The port of a process, from the first one's; any free one where that is 0."""
    return first + process if first else 0


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens: from here on a client waits instead of being refused. Errors: InputError."""
    listener = bind(host, port)
    listener.listen(BACKLOG)
    return listener


def bind(host: str, port: int, shared: bool = False) -> socket.socket:
    """A socket that does not listen yet. Errors: InputError.

    shared: several processes may bind the port, and the kernel gives each connection to one of those that listen, by
    chance. Of a single socket that all listen on, the first to wake up would take every connection of a burst.
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
        told = f"cannot listen on {host} port {port}: {error.strerror}"
        raise InputError(f"{told}. Name another port (0 takes a free one), or an own address") from None
    return listener


def refuse_strangers(settings: Settings) -> None:
    """Errors: InputError when other machines could ask, no key is set, and nobody said that this is meant."""
    if settings.api_keys or settings.without_keys:
        return
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(settings.host, None)}
    except OSError:
        return  # `listen` says what is wrong with it
    if not all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses):
        told = f"--host {settings.host} lets other machines ask, but no API key is set"
        remedy = "Put api_keys into the --settings file (python -m serving.keys makes one), or say --without-keys"
        raise InputError(f"{told}. {remedy}")


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
