"""A headless Chromium, driven by the Chrome DevTools Protocol over a pipe: it needs no port and no package."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def program():
    """The browser's path; None if it is not installed."""
    return shutil.which("chromium")


class Browser:
    """One browser with one page at a time. `console` keeps all console messages of the page, including failed requests."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="ptqwatch-chromium-", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4. Both ends move above these first, so that neither overwrites the other.
        low = [os.dup2(end, 60 + i) and 60 + i for i, end in enumerate((to_read, to_write))]

        def connect():
            os.dup2(low[0], 3)
            os.dup2(low[1], 4)

        self.process = subprocess.Popen(
            [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--enable-precise-memory-info",
             f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=connect, pass_fds=(3, 4, *low))
        for end in (to_read, to_write, *low):
            os.close(end)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.console, self.requests, self.size = [], [], (1400, 900)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close", browser=True)
            self.process.wait(timeout=10)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.profile.cleanup()

    def read(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                return None
            chunk = os.read(self.back, 1 << 20)
            if not chunk:
                raise AssertionError("the browser ended")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        self.note(message)
        return message

    def note(self, message):
        method, said = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.console.append(" ".join(str(part.get("value", part.get("description"))) for part in said["args"]))
        elif method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.console.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def call(self, method, browser=False, timeout=60, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session and not browser:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self.read(deadline)
            if answer is None:
                raise AssertionError(f"{method} was not answered within {timeout} s")
            if answer.get("id") != number:
                continue
            if "error" in answer:
                raise AssertionError(f"{method}: {answer['error']}")
            return answer["result"]

    def open(self, url, width=1400, height=900, dark=False, before=None):
        """Opens a new page in a window of this size; the script `before` runs before the page's own scripts."""
        if self.session:
            self.call("Page.close")
        self.session = None
        self.console, self.requests = [], []
        target = self.call("Target.createTarget", browser=True, url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", browser=True, targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if before:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.call("Page.navigate", url=url)

    def resize(self, width, height):
        self.size = (width, height)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(f"{expression}: {details.get('exception', {}).get('description') or details['text']}")
        return answer["result"].get("value")

    def until(self, expression, timeout=30):
        """Waits until the expression is true in the page, and returns its value."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                value = self.evaluate(expression)
            except AssertionError as error:  # between two documents
                value = None
                if time.monotonic() > deadline:
                    raise error
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"{expression} is not true within {timeout} s; the page says: {self.evaluate('document.body.innerText')}"
                                     f"\nconsole: {self.console}")
            time.sleep(0.02)

    def screenshot(self, path, whole_page=False, scale=1):
        width, height = self.size
        extra = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}}
        if whole_page:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            extra = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        image = self.call("Page.captureScreenshot", format="png", **extra)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(image))
