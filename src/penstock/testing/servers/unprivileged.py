"""Run servers that refuse root: as the user `nobody` if we are root, else as ourselves."""

import os
import pwd
import shutil
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any


def identity() -> dict[str, Any]:
    """Keyword arguments for `subprocess` that drop root; empty when we are not root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def reachable(path: Path) -> bool:
    """Whether the user of `identity()` may enter every directory above `path` and read it."""
    if os.geteuid() != 0:
        return True
    path = path.resolve()
    wanted = stat.S_IROTH | stat.S_IXOTH
    above = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    return above and path.stat().st_mode & wanted == wanted


def private_directory(prefix: str) -> Path:
    """A new temporary directory that belongs to the user of `identity()`. The caller removes it."""
    bases = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    base = next((base for base in bases if base.is_dir() and reachable(base)), bases[0])
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    if dropped := identity():
        os.chown(directory, dropped["user"], dropped["group"])
    return directory


def copy_tree(source: Path, target: Path) -> None:
    """Copies a directory so that everybody may read it."""
    shutil.copytree(source, target, symlinks=True)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
