"""A TCP proxy between a gateway and its model server: a cable that delays, hangs, breaks and garbles."""

import contextlib
import socket
import threading
from types import TracebackType


class Cable:
    """Listens on a free port of loopback, and passes on what it is given.

    seconds: that answers are held back. hangs: nothing comes back. cuts: so many times, the connection is ended when
    the next bytes come from the gateway. garbles: the bytes that come back are turned over.
    """

    def __init__(self, port: int) -> None:
        self._port = port  # of the model server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0  # that were ever made
        self.seconds, self.hangs, self.cuts, self.garbles = 0.0, False, 0, False
        self._down = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def mend(self) -> None:
        """As at the beginning; connections that were made worse are ended."""
        worse = self.hangs or self.garbles
        self.seconds, self.hangs, self.cuts, self.garbles, self._down = 0.0, False, 0, False, False
        if worse:
            self.end_connections()

    def pull_out(self) -> None:
        """Every connection ends, and no new one lives, until it is mended."""
        self._down = True
        self.end_connections()

    def end_connections(self) -> None:
        connections, self._open = self._open, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                if self._down:
                    near.close()
                    continue
                self.connections += 1
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += [near, far]
                threading.Thread(target=self._carry, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, True), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, back: bool) -> None:
        with contextlib.suppress(OSError):  # ended at the other side
            while content := source.recv(1 << 16):
                if back and self.seconds:
                    threading.Event().wait(self.seconds)
                if back and self.hangs:
                    continue
                if not back and self.cuts:
                    self.cuts -= 1
                    break
                target.sendall(bytes(255 - byte for byte in content) if back and self.garbles else content)
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def __enter__(self) -> "Cable":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()
        self.end_connections()
