"""The error of a failing export directory store. This module imports no TensorFlow."""


class StoreError(Exception):
    """A file or directory could not be read or copied. The version itself may be valid.

    transient: whether the same call may succeed later without intervention.
    """

    def __init__(self, message: str, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient
