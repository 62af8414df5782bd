"""Number of CPUs this process may use: its affinity and the CPU quota of its cgroups.

`os.sched_getaffinity` does not see the quota that `docker run --cpus` or a Kubernetes limit sets. More threads than the
quota allows exhaust it early in each period; the kernel then throttles all of them until the next period.
"""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_TENSORFLOW_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")  # TensorFlow reads them when it starts
_ESCAPED = re.compile(r"\\([0-7]{3})")  # octal escapes of mountinfo, e.g. of a space


@dataclass(frozen=True, slots=True)
class Cpus:
    """CPUs granted to this process by the scheduler and the cgroups."""

    affinity: int  # CPUs it may run on
    quota: float | None  # CPU time a period, in CPUs; None: no limit

    def share(self, processes: int = 1) -> int:
        """Returns the number of CPUs to size thread pools by, at least 1, when `processes` processes share the quota.

        Rounds up, as Go and the JVM do: 1.5 CPUs keep two threads busy 75% of the time; one thread would leave a
        third of the quota unused.
        """
        if self.quota is None:
            return self.affinity
        return max(1, min(self.affinity, math.ceil(self.quota / processes)))


def available_cpus() -> Cpus:
    return Cpus(len(os.sched_getaffinity(0)), cpu_quota())


def size_tensorflow(threads: int) -> dict[str, str]:
    """Sets TensorFlow's intra- and inter-op threads where the environment does not. Call before TensorFlow starts.

    Returns the resulting values by variable name.
    """
    return {name: os.environ.setdefault(name, str(threads)) for name in _TENSORFLOW_THREADS}


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Returns the smallest quota of this process's cgroups and their ancestors, in CPUs; None if there is none.

    Reads cgroup v1 (`cpu.cfs_quota_us`) and v2 (`cpu.max`). A container sees only its own cgroup and below.
    root: directory that holds /proc and the cgroups.
    """
    quotas = [_quota(directory) for directory in _cgroups(root)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _cgroups(root: Path) -> Iterator[Path]:
    """Yields the directories of the cgroups that may limit this process's CPU time."""
    paths: dict[str, PurePosixPath] = {}  # by file system type
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, name = line.split(":", 2)
        if not controllers:
            paths["cgroup2"] = PurePosixPath(name)
        elif "cpu" in controllers.split(","):
            paths["cgroup"] = PurePosixPath(name)
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, source = line.partition(" - ")
        kind, _, options = source.split(" ", 2)
        if kind not in paths or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        top, at = (_ESCAPED.sub(lambda code: chr(int(code[1], 8)), field) for field in mount.split(" ")[3:5])
        path, mounted = paths[kind], root / at.lstrip("/")
        below = path.relative_to(top) if path.is_relative_to(top) and ".." not in path.parts else PurePosixPath()
        yield mounted
        yield from (mounted / step for step in (below, *below.parents) if step.parts)


def _quota(directory: Path) -> float | None:
    """Errors: ValueError if a file is not in the kernel's format."""
    if limit := _lines(directory / "cpu.max"):
        quota, period = limit[0].split()
        return None if quota == "max" else int(quota) / int(period)
    limit, periods = _lines(directory / "cpu.cfs_quota_us"), _lines(directory / "cpu.cfs_period_us")
    if limit and periods and int(limit[0]) > 0:
        return int(limit[0]) / int(periods[0])
    return None


def _lines(path: Path) -> list[str]:
    """Returns the file's lines; an empty list if it does not exist or cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
