"""Hosts on one machine: network namespaces on a bridge, each with a host name and a scratch directory of its own.

Needs root and the program `ip`. A host whose link is down answers nothing, as behind a broken switch: its connections
are not closed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SUBNET = "10.207.0"
DRIVER = f"{SUBNET}.1"
"""Address of the driver's host, which is the machine itself."""


def missing() -> str | None:
    """Return why this machine cannot have such hosts, None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the program ip is missing (package iproute2)"
    probe = subprocess.run(["ip", "netns", "add", "eddy-probe"], capture_output=True, text=True)
    if probe.returncode:
        return f"this machine makes no network namespaces: {probe.stderr.strip()}"
    _ip("netns del eddy-probe")
    return None


class Host:
    """A host; its number is part of its address.

    scratch  the directory that all hosts call by the same name, as it is on this one
    """

    def __init__(self, number: int, scratch: Path) -> None:
        self.name, self.address = f"eddy-{number}", f"{SUBNET}.{10 + number}"
        self.scratch = scratch
        self._link = f"eddy-l{number}"

    def make(self, bridge: str) -> None:
        self.scratch.mkdir(parents=True)
        _ip(f"netns add {self.name}")
        _ip(f"link add {self._link} type veth peer name eth0 netns {self.name}")
        _ip(f"link set {self._link} master {bridge} up")
        _ip(f"-n {self.name} addr add {self.address}/24 dev eth0")
        _ip(f"-n {self.name} link set eth0 up")
        _ip(f"-n {self.name} link set lo up")

    def run(self, command: list[str], common: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a program on the host, for which `common` is the scratch directory of the host."""
        prepare = 'hostname "$1"; mount --bind "$2" "$3"; shift 3; exec "$@"'
        inside = ["unshare", "--uts", "sh", "-ec", prepare, "sh", self.name, str(self.scratch), str(common), *command]
        return subprocess.Popen(["ip", "netns", "exec", self.name, *inside], env=environment, start_new_session=True)

    def connected(self, up: bool) -> None:
        """Connect the host to the others, or cut it off."""
        _ip(f"link set {self._link} {'up' if up else 'down'}")


@contextlib.contextmanager
def hosts(count: int, scratch: Path) -> Iterator[list[Host]]:
    """Make hosts, and remove them at the end."""
    bridge = "eddy-bridge"
    made = [Host(number, scratch / str(number)) for number in range(count)]
    with contextlib.ExitStack() as undo:
        _ip(f"link add {bridge} type bridge")
        undo.callback(_ip, f"link del {bridge}")
        _ip(f"addr add {DRIVER}/24 dev {bridge}")
        _ip(f"link set {bridge} up")
        for host in made:
            host.make(bridge)
            undo.callback(_ip, f"netns del {host.name}")
        yield made


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)
