#!/usr/bin/env python3
"""The full-screen view of `ptqwatch watch` on a real pseudo-terminal: watch_screen_test.py PTQWATCH [unittest arguments]"""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from recorded_run import write_run
from trainer import Server

PTQWATCH = None
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


class Screen:
    """A program on its own terminal."""

    def __init__(self, *command, rows=40, columns=100, env=None, stdin=None):
        self.master, self.slave = os.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.output = ""

        def own_terminal():
            os.setsid()
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)

        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})}
        self.process = subprocess.Popen(command, stdin=stdin or self.slave, stdout=self.slave, stderr=self.slave, env=environment,
                                        preexec_fn=own_terminal)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            self.output += os.read(self.master, 65536).decode(errors="replace")

    def frame(self):
        """The lines of the newest complete frame, without colors."""
        frames = self.output.split("\x1b[H")[1:]
        return [re.sub(r"\r|\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in frames[-1].split("\n")] if frames else []

    def until(self, condition, timeout=30):
        """Reads until condition(self) is true."""
        deadline = time.monotonic() + timeout
        while not (found := condition(self)):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout} s; the screen is\n" + "\n".join(self.frame()) + f"\nof {self.output[-2000:]!r}")
            self.read(0.1)
        return found

    def shows(self, *texts, timeout=30):
        return self.until(lambda screen: all(text in "\n".join(screen.frame()) for text in texts), timeout)

    def press(self, keys):
        os.write(self.master, keys.encode())

    def wait(self):
        """Waits for the end and returns the exit code; negative for a signal."""
        self.until(lambda screen: screen.process.poll() is not None)
        before = None
        while self.output != before:  # a read gives 4 KiB
            before = self.output
            self.read(0.1)
        return self.process.returncode

    def assert_restored(self, test):
        for on, off in [(ENTER, LEAVE), ("\x1b[?25l", "\x1b[?25h"), ("\x1b[?7l", "\x1b[?7h")]:
            test.assertIn(on, self.output)
            test.assertGreater(self.output.rfind(off), self.output.rfind(on), self.output[-300:])
        test.assertEqual(termios.tcgetattr(self.slave), self.before)


class Watch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.run_dir = write_run(PTQWATCH, os.path.join(cls.folder.name, "seven"))
        cls.server = Server(PTQWATCH, cls.run_dir, http="off")

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.folder.cleanup()

    def watch(self, *flags, target=None, **options):
        return Screen(PTQWATCH, "watch", target or self.server.address, *flags, **options)

    def test_shows_the_run_and_ends_with_q(self):
        with self.watch() as screen:
            screen.shows("seven at", "ALARM decay_degradation since step", "worst layers under gptq3", "│decay", "q quits")
            lines = screen.frame()
            self.assertEqual(len(lines), 40)
            self.assertTrue(any(re.match(r"gptq3 +\d+\.\d+±\d+\.\d+% .*[▁▂▃▄▅▆▇█]{40}", line) for line in lines), lines)
            self.assertFalse(termios.tcgetattr(screen.slave)[3] & (termios.ECHO | termios.ICANON))
            screen.press("q")
            self.assertEqual(screen.wait(), 0)
            screen.assert_restored(self)
            self.assertRegex(screen.output.split(LEAVE)[-1], r"^step 16000: .*decay_degradation")

    def test_follows_the_size_of_the_terminal(self):
        with self.watch() as screen:
            screen.shows("ALARM", "q quits")
            for rows, columns in [(12, 40), (5, 20), (50, 140)]:
                screen.resize(rows, columns)
                # A part of an earlier frame may have as many rows.
                screen.until(lambda screen, rows=rows, columns=columns: len(screen.frame()) == rows and
                             max(map(len, screen.frame())) <= columns and "ALARM" in "\n".join(screen.frame()))
            screen.press("q")
            self.assertEqual(screen.wait(), 0)
            screen.assert_restored(self)

    def test_gives_the_terminal_back_however_it_ends(self):
        for how, code in [("\x03", 130), ("\x1c", 131), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130),
                          (signal.SIGSEGV, -signal.SIGSEGV), (signal.SIGABRT, -signal.SIGABRT)]:
            with self.subTest(how=how), self.watch() as screen:
                screen.shows("q quits")
                if isinstance(how, str):
                    screen.press(how)
                else:
                    screen.process.send_signal(how)
                self.assertEqual(screen.wait(), code)
                screen.assert_restored(self)

    def test_stops_and_goes_on(self):
        with Screen("bash", "-c", 'set -m; "$0" watch "$1"; echo stopped; read -r line; fg >/dev/null; echo ended', PTQWATCH,
                    self.server.address) as screen:
            screen.shows("q quits")
            screen.press("\x1a")
            screen.until(lambda screen: "stopped\r\n" in screen.output.split(LEAVE)[-1])
            self.assertEqual(termios.tcgetattr(screen.slave)[3] & termios.ECHO, termios.ECHO)
            screen.output = ""
            screen.press("\n")
            screen.shows("q quits")
            self.assertIn(ENTER, screen.output)
            screen.press("q")
            screen.until(lambda screen: "ended\r\n" in screen.output.split(LEAVE)[-1])
            self.assertEqual(screen.wait(), 0)
            screen.assert_restored(self)

    def test_ends_with_the_run(self):
        run_dir = write_run(PTQWATCH, os.path.join(self.folder.name, "ends"))
        with self.watch(target=run_dir) as screen:
            screen.shows("q quits", "gptq3")
            with open(os.path.join(run_dir, "journal.jsonl"), "a", encoding="utf-8") as journal:
                journal.write('{"event":{"kind":"stopped","severity":"info","step":16000,"time_unix_seconds":1.7e9,"message":"the end"}}\n')
            self.assertEqual(screen.wait(), 0)
            screen.assert_restored(self)
            self.assertRegex(screen.output.split(LEAVE)[-1], r"^step 16000: .*\r\nthe run has stopped\r\n$")

    def test_outlives_its_server(self):
        server = Server(PTQWATCH, self.run_dir, http="off")
        with self.watch(target=server.address) as screen:
            screen.shows("q quits", "gptq3")
            server.kill()
            screen.until(lambda screen: re.search(r"no connection since \d\d:\d\d:\d\d \(\d+ s\), trying again", "\n".join(screen.frame())))
            self.assertIn("gptq3", "\n".join(screen.frame()))
            server = Server(PTQWATCH, self.run_dir, http="off", grpc=server.address)
            screen.until(lambda screen: "trying again\n" not in "\n".join(screen.frame()))
            screen.shows("connected again")
            screen.press("q")
            self.assertEqual(screen.wait(), 0)
            screen.assert_restored(self)
        server.kill()

    def test_gives_up_with_a_line_when_told_to(self):
        server = Server(PTQWATCH, self.run_dir, http="off")
        with self.watch("--timeout", "5", target=server.address) as screen:
            screen.shows("q quits")
            server.kill()
            self.assertEqual(screen.wait(), 1)
            screen.assert_restored(self)
            self.assertRegex(screen.output.split(LEAVE)[-1], r"(?m)^ptqwatch: .*" + re.escape(server.address))

    def test_draws_rows_where_it_is_asked_to_or_cannot_do_otherwise(self):
        for flags, options in [(["--plain"], {}), (["--json"], {}), ([], {"env": {"TERM": "dumb"}}), ([], {"stdin": subprocess.DEVNULL})]:
            with self.subTest(flags=flags, **options), self.watch("--count", "40", *flags, **options) as screen:
                self.assertEqual(screen.wait(), 0)
                self.assertNotIn(ENTER, screen.output)
                self.assertRegex(screen.output, '"step":16000' if "--json" in flags else r" 16000 .* decay\b")

    def test_is_ascii_where_the_terminal_is(self):
        with self.watch(env={"LC_ALL": "C"}) as screen:
            screen.shows("ALARM", "q quits")
            self.assertTrue("".join(screen.frame()).isascii(), screen.frame())
            self.assertRegex("\n".join(screen.frame()), r"gptq3 +\d+\.\d+\+-\d+\.\d+%  [_.\-=+*#@]{40}")

    def test_no_name_moves_the_cursor(self):
        evil = write_run(PTQWATCH, os.path.join(self.folder.name, "e\x1b[2J\x1b]0;x\x07\nvil"))
        with self.watch(target=evil) as screen:
            screen.shows("e?[2J?]0;x??vil", "q quits")
            self.assertNotIn("\x1b]", screen.output)
            self.assertEqual(len(screen.frame()), 40)


if __name__ == "__main__":
    PTQWATCH = sys.argv.pop(1)
    unittest.main()
