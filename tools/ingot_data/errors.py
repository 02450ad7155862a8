"""The one error type of the data tools, and the wording of operating-system errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataError(Exception):
    """A problem that the user can fix. The message says what, the value, the limit and the fix."""


@contextmanager
def io_errors(action: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns an OSError inside the block into one readable DataError that names `path`."""
    try:
        yield
    except OSError as error:
        raise DataError(describe_os_error(action, path, error)) from error


def describe_os_error(action: str, path: str | os.PathLike[str], error: OSError) -> str:
    """One line for an operating-system error, with the fix for the common ones."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    text = f"cannot {action} {os.fspath(path)}: {reason}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        text += f" ({free_space(path)}); free some space or choose another --out"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        text += "; check the permissions of the file and of its folder"
    return text


def free_space(path: str | os.PathLike[str]) -> str:
    """The free bytes of the file system that holds `path`, in words."""
    folder = Path(path)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        stats = os.statvfs(folder)
    except OSError:
        return "free space unknown"
    return f"{stats.f_bavail * stats.f_frsize} bytes free there"
