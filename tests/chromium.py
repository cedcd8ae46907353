"""A headless Chromium, driven through its debugging pipe: open a page, wait for a condition, take its picture.

Chromium reads commands as JSON from descriptor 3 and answers on descriptor 4, each message ended by a zero byte
(`--remote-debugging-pipe`), so no package is needed. The flags `--dump-dom` and `--screenshot` are no alternative: they
wait for the end of all requests, and the event stream of a live page has none.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip


class Chromium:
    """A browser with one page of `width` by `height` pixels; `profile` is an empty folder for its files."""

    def __init__(self, profile: Path, width: int = 1200, height: int = 900, seconds: float = 120) -> None:
        assert PROGRAM is not None
        self._seconds = seconds
        self._read, answers = os.pipe()
        commands, self._write = os.pipe()
        # A shell gives the pipes the numbers 3 and 4; `exec` leaves no second process to end.
        line = shlex.join([PROGRAM, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"])
        command = f"exec 3<&{commands} 4>&{answers}; exec {line} about:blank"
        self._process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(commands)
        os.close(answers)
        self._buffer, self._number = b"", 0
        self._session: str | None = None
        try:
            target = self._page()
            self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.ask(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
            )
        except BaseException:
            self.close()
            raise

    def _page(self) -> str:
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            for target in self.ask("Target.getTargets")["targetInfos"]:
                if target["type"] == "page":
                    return str(target["targetId"])
            time.sleep(0.1)
        raise TimeoutError("Chromium opened no page")

    def ask(self, method: str, **values: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its result; events are passed over."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + self._seconds
        while True:
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._read], [], [], max(end - time.monotonic(), 0))
                chunk = os.read(self._read, 1 << 16) if ready else b""
                if not chunk:
                    raise TimeoutError(f"Chromium has not answered {method} in {self._seconds} s, or has ended")
                self._buffer += chunk
            line, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, url: str) -> None:
        """Open an address."""
        assert "errorText" not in self.ask("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        """Return the value of an expression in JavaScript."""
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression in JavaScript is true."""
        end = time.monotonic() + self._seconds
        while not self.value(script):
            assert time.monotonic() < end, f"not true in {self._seconds} s: {script}"
            time.sleep(0.1)

    def picture(self, selector: str = "html") -> bytes:
        """Return a PNG of an element, whole, also where it is longer than the window."""
        find = f"JSON.stringify(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        box = json.loads(self.value(find))
        clip = {key: box[key] for key in ("x", "y", "width", "height")} | {"scale": 1}
        captured = self.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(captured["data"])

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
