"""Hosts on one machine: network namespaces on a bridge, each with a host name and a scratch directory of its own.

All of them live inside one more namespace (`INSIDE`), so they disturb nothing on the machine, and end with the program
that made them. A host whose link is down answers nothing, as behind a broken switch: its connections are not closed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SUBNET = "10.207.0"
DRIVER = f"{SUBNET}.1"
"""Address of the driver's host."""
BRIDGE = "eddy-bridge"


INSIDE = ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
"""Runs a program in which `hosts` works."""


def missing() -> str | None:
    """Return why this machine cannot have such hosts, None if it can."""
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            return f"the program {program} is missing (Debian: packages iproute2 and util-linux)"
    probe = subprocess.run([*INSIDE, "ip", "link", "add", BRIDGE, "type", "bridge"], capture_output=True, text=True)
    return f"this machine makes no network namespaces: {probe.stderr.strip()}" if probe.returncode else None


class NetworkHost:
    """A host; its number is part of its address.

    scratch  the directory that all hosts call by the same name, as it is on this one
    """

    def __init__(self, number: int, scratch: Path) -> None:
        self.name, self.address = f"eddy-{number}", f"{SUBNET}.{10 + number}"
        self.scratch = scratch
        self._link = f"eddy-l{number}"

    def make(self) -> None:
        self.scratch.mkdir(parents=True)
        _ip(f"netns add {self.name}")
        _ip(f"link add {self._link} type veth peer name eth0 netns {self.name}")
        _ip(f"link set {self._link} master {BRIDGE} up")
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


def hosts(count: int, scratch: Path) -> list[NetworkHost]:
    """Make hosts, each with a directory below `scratch`."""
    made = [NetworkHost(number, scratch / str(number)) for number in range(count)]
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)  # where `ip` keeps the names of namespaces
    _ip("link set lo up")
    _ip(f"link add {BRIDGE} type bridge")
    _ip(f"addr add {DRIVER}/24 dev {BRIDGE}")
    _ip(f"link set {BRIDGE} up")
    for host in made:
        host.make()
    return made


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)
