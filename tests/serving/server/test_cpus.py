"""Threads by CPU quota: cgroup trees of every kind, and a gateway inside a cgroup of this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.cpus import Cpus, cpu_quota
from serving.settings import CORES
from tests.serving.processes import GatewayProcess, run_serving

PERIOD = 100_000  # microseconds


def tree(root: Path, cgroups: str, mounts: str, files: dict[str, str]) -> Path:
    """A root directory with this /proc/self/cgroup, this mountinfo, and these files of cgroups."""
    for name, content in {"proc/self/cgroup": cgroups, "proc/self/mountinfo": mounts, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def v1_mount(top: str = "/", at: str = "/sys/fs/cgroup/cpu,cpuacct") -> str:
    memory = f"30 24 0:26 {top} /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
    return memory + f"31 24 0:27 {top} {at} rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"


def v2_mount(top: str = "/") -> str:
    return f"1 0 8:1 / / rw - ext4 /dev/sda rw\n29 23 0:26 {top} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"


def v1_limit(directory: str, quota: int) -> dict[str, str]:
    at = f"sys/fs/cgroup/cpu,cpuacct{directory}"
    return {f"{at}/cpu.cfs_quota_us": f"{quota}\n", f"{at}/cpu.cfs_period_us": f"{PERIOD}\n"}


def v2_limit(directory: str, limit: str) -> dict[str, str]:
    return {f"sys/fs/cgroup{directory}/cpu.max": f"{limit}\n"}


V1_PATH, V2_PATH = "9:memory:/other\n4:cpu,cpuacct:{0}\n0::/x\n", "0::{0}\n"
TREES: dict[str, tuple[str, str, dict[str, str], float | None]] = {
    # cgroups, mounts, files, quota
    "v1, no quota": (V1_PATH.format("/"), v1_mount(), v1_limit("", -1), None),
    "v1, a quota": (V1_PATH.format("/app"), v1_mount(), v1_limit("", -1) | v1_limit("/app", 250_000), 2.5),
    "v1, the smaller quota is further up": (
        V1_PATH.format("/pod/app"),
        v1_mount(),
        v1_limit("/pod", 50_000) | v1_limit("/pod/app", 400_000),
        0.5,
    ),
    "v1, a container that sees its own cgroup as the root of the mount": (
        V1_PATH.format("/docker/1f"),
        v1_mount("/docker/1f"),
        v1_limit("", 150_000),
        1.5,
    ),
    "v1, a cgroup beside the mount's root": (
        V1_PATH.format("/docker/2e"),
        v1_mount("/docker/1f"),
        v1_limit("", 200_000) | v1_limit("/docker/2e", 100_000),
        2.0,
    ),
    "v1, a mount point with a space": (
        V1_PATH.format("/"),
        v1_mount(at=r"/sys/fs/my\040cgroup"),
        {"sys/fs/my cgroup/cpu.cfs_quota_us": "300000\n", "sys/fs/my cgroup/cpu.cfs_period_us": "100000\n"},
        3.0,
    ),
    "v2, no quota": (V2_PATH.format("/app"), v2_mount(), v2_limit("/app", "max 100000"), None),
    "v2, a quota": (V2_PATH.format("/app"), v2_mount(), v2_limit("/app", "200000 100000"), 2.0),
    "v2, another period": (V2_PATH.format("/app"), v2_mount(), v2_limit("/app", "25000 50000"), 0.5),
    "v2, the smaller quota is further up": (
        V2_PATH.format("/pod/mid/app"),
        v2_mount(),
        v2_limit("/pod", "150000 100000") | v2_limit("/pod/mid", "max 100000") | v2_limit("/pod/mid/app", "8000 1000"),
        1.5,
    ),
    "v2, a namespace of its own": (V2_PATH.format("/"), v2_mount(), v2_limit("", "400000 100000"), 4.0),
    "v2, a cgroup above the namespace's root": (
        V2_PATH.format("/../other"),
        v2_mount("/../other"),
        v2_limit("", "300000 100000"),
        3.0,
    ),
    "both, and v2 without the controller": (
        V1_PATH.format("/app"),
        v1_mount() + "40 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        v1_limit("/app", 100_000) | {"sys/fs/cgroup/unified/x/cgroup.procs": ""},
        1.0,
    ),
    "neither": ("", v2_mount().splitlines()[0] + "\n", {}, None),
}  # fmt: skip


@pytest.mark.parametrize("kind", TREES)
def test_the_smallest_quota_on_the_way_to_the_root_counts(tmp_path: Path, kind: str) -> None:
    cgroups, mounts, files, quota = TREES[kind]
    assert cpu_quota(tree(tmp_path, cgroups, mounts, files)) == quota


def test_without_proc_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("affinity", "quota", "processes", "share"),
    [
        (64, None, 1, 64),
        (64, 2.0, 1, 2),
        (64, 1.5, 1, 2),  # two threads, three quarters of the time
        (64, 0.25, 1, 1),
        (2, 8.0, 1, 2),  # fewer cores than the quota
        (32, 4.0, 2, 2),  # two processes have the quota together
        (32, 3.0, 2, 2),
        (32, 1.0, 2, 1),
        (32, None, 2, 32),  # its affinity is its own share already
    ],
)
def test_threads_are_sized_by_affinity_and_quota(
    affinity: int, quota: float | None, processes: int, share: int
) -> None:
    assert Cpus(affinity, quota).share(processes) == share


# --- for real


@pytest.fixture
def limited() -> Iterator[list[str]]:
    """A command prefix that runs what follows in a cgroup with 0.9 CPUs."""
    v1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    group = (v1.parent if v1.exists() else Path("/sys/fs/cgroup")) / f"privrank-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"this machine lets no test make a cgroup: {error}")
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text("90000 100000")
        elif (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_quota_us").write_text("90000")
        else:
            pytest.skip("cgroups that a test may make here have no CPU controller")
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        group.rmdir()


@pytest.mark.skipif(CORES < 2, reason="one thread is no fewer than one core")
def test_a_gateway_in_a_cgroup_sizes_its_threads_by_the_quota(
    limited: list[str], shop: GatewayProcess, shop_export: Path
) -> None:
    with GatewayProcess(shop_export, launcher=limited) as gateway:
        gateway.wait_until_ready()
        assert gateway.post({"query": "sofa", "items": ["a"]}).status_code == 200
        sizes = gateway.logged("threads")[0]
        assert (sizes["affinity"], sizes["cpu_quota"]) == (len(os.sched_getaffinity(0)), 0.9)
        assert sizes["scoring"] == 1
        assert (sizes["tensorflow_intra_op"], sizes["tensorflow_inter_op"]) == ("1", "1")
        # as the kernel counts them: a gateway without the quota has a thread a core in each pool
        assert shop.post({"query": "sofa", "items": ["a"]}).status_code == 200
        assert threads(gateway) <= threads(shop) - 2 * (CORES - 1)
        assert shop.logged("threads")[0]["tensorflow_intra_op"] == str(CORES)


def threads(gateway: GatewayProcess) -> int:
    return len(os.listdir(f"/proc/{gateway.pid}/task"))


@pytest.mark.skipif(CORES < 2, reason="more processes than cores are refused without a quota, too")
def test_more_processes_than_the_quota_are_refused(limited: list[str], tmp_path: Path) -> None:
    settings = tmp_path / "gateway.yaml"
    settings.write_text("processes: {number: 2}")
    ended = run_serving("--export-dir", str(tmp_path), "--port", "0", "--settings", str(settings), launcher=limited)
    assert ended.returncode == 2
    assert "error: processes.number is 2, but this process may use 1 cores" in ended.stderr
