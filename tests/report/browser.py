"""A real Chromium without a window, driven through its own debugging pipe: what a page logs, loads and looks like."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

DEADLINE_S = 60
NAMES = ("chromium", "chromium-browser", "google-chrome")


class Browser:
    """One page of one headless browser, as a context manager; `errors` and `requests` grow while it is open."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        assert program, "chromium is missing: the set-up installs it (apt package chromium)"
        self._folder = tempfile.TemporaryDirectory(prefix="brokerdrill-chromium-", ignore_cleanup_errors=True)
        read_end, self._write = os.pipe()
        self._read, write_end = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        self._process = subprocess.Popen(
            [
                "bash", "-c", f'exec "$@" 3<&{read_end} 4>&{write_end}', "chromium", program, "--headless",
                "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
                "--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars",
                "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}", "about:blank",
            ],
            pass_fds=(read_end, write_end), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_end)
        os.close(write_end)
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)  # the browser ends with its pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        self._folder.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._last_id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready = select.select([self._read], [], [], max(0, left))[0]
            assert ready, "chromium does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "chromium ended"
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(item.get("value") or item.get("description")) for item in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def view(self, width: int, height: int, dark: bool = False) -> None:
        """Set the window's size in CSS pixels and the colours that the system asks for."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, page: Path | str, until: str) -> None:
        """Load a file or a URL and wait until the JavaScript expression `until` is true."""
        self.loaded = False
        self.call("Page.navigate", url=page if isinstance(page, str) else page.absolute().as_uri())
        deadline = time.monotonic() + DEADLINE_S
        while not self.loaded:
            self._receive(deadline)
        self.wait(until)

    def wait(self, until: str) -> None:
        """Wait until the JavaScript expression `until` is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.evaluate(until):
            assert time.monotonic() < deadline, f"never true: {until}; errors: {self.errors}"
            self.frames()

    def frames(self) -> None:
        """Let the page draw two frames: what it was told before is then on the screen."""
        expression = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.call("Runtime.evaluate", awaitPromise=True, expression=expression)

    def evaluate(self, expression: str) -> Any:
        """Return the JSON value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def type(self, text: str) -> None:
        """Type `text` where the focus is; "\\n" and "\\t" are the keys Enter and Tab."""
        for sign in text:
            if name := {"\n": "Enter", "\t": "Tab"}.get(sign):
                code = {"Enter": 13, "Tab": 9}[name]
                key = {"key": name, "code": name, "windowsVirtualKeyCode": code, "text": "\r" if sign == "\n" else ""}
                self.call("Input.dispatchKeyEvent", type="keyDown", **key)
                self.call("Input.dispatchKeyEvent", type="keyUp", **key)
            else:
                self.call("Input.insertText", text=sign)

    def mouse(self, kind: str, x: float, y: float, **params: Any) -> None:
        """Send a mouse event (`mouseMoved`, `mousePressed`, `mouseReleased`) at a place of the window."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **params)

    def screenshot(self, path: Path, full: bool = True) -> Path:
        """Write a PNG of the whole page, or of the window."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
        path.write_bytes(base64.b64decode(data))
        return path
