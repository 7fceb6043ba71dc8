#!/usr/bin/env python3
"""`ptqwatch serve` in another process, on run directories: serve_test.py CHAR_GPT PTQWATCH [unittest arguments]"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import recorded_run
from trainer import Server, Trainer, journal

CHAR_GPT, PTQWATCH = None, None
NO_SERVERS = ["--http", "off", "--grpc", "off"]


def ptqwatch(*arguments, timeout=120):
    done = subprocess.run([PTQWATCH, *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    return done.returncode, done.stdout, done.stderr


def reports_of(text):
    return [line for line in map(json.loads, text.splitlines()) if "event" not in line]


class Serve(unittest.TestCase):
    def test_follows_a_run_through_death_and_resumption(self):
        with tempfile.TemporaryDirectory() as folder:
            run_dir = os.path.join(folder, "one")
            with Server(PTQWATCH, run_dir) as server:
                self.assertEqual(server.get("metrics")[0], 503)  # there is no run yet
                with Trainer(CHAR_GPT, "--steps", "100000", "--run-dir", run_dir, *NO_SERVERS) as trainer:
                    server.until("metrics", lambda code, page: code == 200 and 'ptqwatch_snapshot_step{run="one"}' in page)
                    code, out, err = ptqwatch("snapshot", run_dir, "--wait")
                    self.assertEqual(code, 0, err)
                    self.assertIn("report", out)
                    self.assertEqual(ptqwatch("every", run_dir, "70")[0], 0)
                    code, _, err = ptqwatch("pause", server.address)
                    self.assertEqual(code, 1)
                    self.assertIn("allow_control", err)
                    trainer.process.kill()
                    trainer.process.wait()
                self.assertEqual(ptqwatch("pause", run_dir)[0], 1)
                server.until("readyz", lambda code, page: code == 503 and "no sign of life" in page)
                self.assertEqual(server.get("healthz")[0], 200)

                # A dead run will not continue, unless the next attempt is wanted.
                code, out, err = ptqwatch("watch", server.address, "--json")
                self.assertEqual(code, 1)
                self.assertEqual([r["sequence"] for r in reports_of(out)], [r["sequence"] for r in journal(run_dir)[0]])
                self.assertRegex(err, r"the run died: no sign of life for \d+ s: .*; --keep waits for the next attempt")
                watch = subprocess.Popen([PTQWATCH, "watch", server.address, "--json", "--keep"],
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                with Trainer(CHAR_GPT, "--steps", "200", "--wait", "on", "--run-dir", run_dir, *NO_SERVERS) as resumed:
                    code, _, err = resumed.finish()
                    self.assertEqual(code, 0, err)
                out = ""
                while '"kind":"stopped"' not in out:
                    line = watch.stdout.readline()
                    self.assertTrue(line, "watch ended before the run")
                    out += line
                watch.kill()
                out += watch.communicate()[0]
                written, events, bad = journal(run_dir)
                self.assertEqual(bad, 0)
                self.assertEqual([r["sequence"] for r in reports_of(out)], [r["sequence"] for r in written])
                self.assertEqual({r["attempt"] for r in written}, {1, 2})
                self.assertIn("stopped", [event["kind"] for event in events])
                server.until("healthz", lambda _, page: json.loads(page)["runs"][0]["health"] == "stopped")
                code, _, err = server.end()
                self.assertEqual((code, err), (0, ""))

            # Later readers find the same: the directory itself, and a server that starts now.
            code, out, err = ptqwatch("watch", run_dir, "--json")
            self.assertEqual((code, reports_of(out)), (0, written), err)
            with Server(PTQWATCH, run_dir) as server:
                server.ready()
                code, out, err = ptqwatch("watch", server.address, "--json")
                self.assertEqual((code, reports_of(out)), (0, written), err)

    def test_serves_many_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            run_dirs = [os.path.join(folder, name) for name in ("a", "b")]
            for run_dir in run_dirs:
                with Trainer(CHAR_GPT, "--steps", "80", "--wait", "on", "--run-dir", run_dir, *NO_SERVERS) as trainer:
                    code, _, err = trainer.finish()
                    self.assertEqual(code, 0, err)
            with Server(PTQWATCH, *run_dirs) as server:
                server.until("metrics", lambda _, page: all(f'ptqwatch_snapshot_step{{run="{run}"}} 80\n' in page for run in "ab"))
                server.ready()
                code, out, _ = ptqwatch("status", server.address)
                self.assertEqual(code, 0)
                self.assertEqual([line.split(":")[0] for line in out.splitlines()], ["a", "b"])
                code, out, err = ptqwatch("watch", server.address, "--run", "b", "--json")
                self.assertEqual((code, reports_of(out)), (0, journal(run_dirs[1])[0]), err)
                code, _, err = ptqwatch("watch", server.address)
                self.assertEqual(code, 1)
                self.assertIn("'a', 'b'", err)

    def test_reads_a_directory_that_another_host_writes(self):
        """As on NFS: files that change, a socket without a listener, and a lock that this kernel does not know."""
        with tempfile.TemporaryDirectory() as folder:
            run_dir = recorded_run.write_run(PTQWATCH, os.path.join(folder, "far"))
            path = os.path.join(run_dir, "journal.jsonl")
            with open(path, encoding="utf-8") as lines:
                lines = lines.readlines()
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(lines[:20])
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(os.path.join(run_dir, "control.sock"))
            open(os.path.join(run_dir, "lock"), "w", encoding="utf-8").close()

            def write_status(last):
                report = json.loads(lines[last - 1])
                status = {"host": "elsewhere", "process_id": 1, "time_unix_seconds": time.time() - 3600,
                          "run": {key: report[key] for key in ("run_id", "attempt", "fingerprint")},
                          "status": {"health": "ok", "step": report["step"], "last_sequence": report["sequence"]}}
                with open(os.path.join(run_dir, ".status.tmp"), "w", encoding="utf-8") as file:
                    json.dump(status, file)
                os.rename(file.name, os.path.join(run_dir, "status.json"))

            write_status(20)
            names = sorted(os.listdir(run_dir))
            with Server(PTQWATCH, run_dir, "--allow-control") as server:
                for first, last in ((20, 25), (25, 40)):
                    with open(path, "a", encoding="utf-8") as file:
                        file.writelines(lines[first:last])
                    write_status(last)
                    step = json.loads(lines[last - 1])["step"]
                    server.until("metrics", lambda code, page, step=step: code == 200 and f'ptqwatch_snapshot_step{{run="far"}} {step}\n' in page)
                    # The newest report is shown while the server still reads those before it.
                    server.ready()
                for place in (run_dir, server.address):
                    code, _, err = ptqwatch("pause", place)
                    self.assertEqual(code, 1)
                    self.assertIn("only on host 'elsewhere'", err)
                code, out, err = ptqwatch("status", server.address)
                self.assertEqual(code, 0, err)
                self.assertRegex(out, r"host +elsewhere")
                code, _, err = server.end()
                self.assertEqual((code, err), (0, ""))
            code, out, err = ptqwatch("history", run_dir, "--json")
            self.assertEqual((code, reports_of(out)), (0, journal(run_dir)[0]), err)
            self.assertEqual(len(journal(run_dir)[0]), 40)
            self.assertEqual(ptqwatch("report", run_dir, "-o", os.path.join(folder, "far.html"))[0], 0)
            code, out, err = ptqwatch("status", run_dir)  # nothing changes any more
            self.assertEqual(code, 0, err)
            self.assertRegex(out, "no sign of life.*on host 'elsewhere'")
            self.assertEqual(sorted(os.listdir(run_dir)), names)

    def test_mistakes(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments, says, expected in (
                    (["serve"], "RUN_DIR", 2),
                    (["serve", folder, "--htpp", "x"], "--htpp", 2),
                    (["serve", folder, "--http", "nonsense"], "nonsense", 1),
                    (["serve", folder, "--http", "0.0.0.0:0"], "--allow-remote", 1),
                    (["serve", folder, "--http", "off", "--grpc", "off"], "nothing", 1),
                    (["watch", os.path.join(folder, "none")], os.path.join(folder, "none"), 1),
                    (["pause", os.path.join(folder, "none")], os.path.join(folder, "none"), 1)):
                code, out, err = ptqwatch(*arguments)
                self.assertEqual((code, out), (expected, ""), arguments)
                self.assertIn(says, err)
                self.assertEqual(len(err.splitlines()), 1, err)
            with Server(PTQWATCH, folder) as server:
                code, _, err = ptqwatch("serve", folder, "--http", "off", "--grpc", server.address)
                self.assertEqual(code, 1)
                self.assertIn(server.address, err)


if __name__ == "__main__":
    CHAR_GPT, PTQWATCH = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
