#!/usr/bin/env python3
"""HTTP with certificates and tokens, with curl and a real Prometheus as clients: https_test.py CHAR_GPT PTQWATCH [unittest arguments]"""

import os
import re
import shutil
import subprocess
import sys
import unittest

from beside import eventually
from prometheus_test import Prometheus
from tls_test import TOKEN, set_up
from trainer import Server

CHAR_GPT, PTQWATCH = None, None
# Exit codes of curl.
OK, CONNECT, NOT_TRUSTED, ALERT = 0, 35, 60, 56


class HttpsServer(Server):
    def __init__(self, *flags):
        super().__init__(PTQWATCH, Https.run_dir, *flags, grpc="off")
        self.scheme, self.port = re.fullmatch(r"(https?)://127.0.0.1:(\d+)/", self.url).groups()

    def curl(self, path, *flags, scheme=None, host="localhost"):
        """Returns (exit code of curl, status, body, message), once the journal has been read."""
        def ask():
            done = subprocess.run(["curl", "-sS", "-m", "20", "-w", "\n%{http_code}", *flags,
                                   f"{scheme or self.scheme}://{host}:{self.port}{path}"], capture_output=True, text=True, timeout=60, check=False)
            body, _, status = done.stdout.rpartition("\n")
            return status != "503" and (done.returncode, int(status), body, done.stderr)

        return eventually(ask, "the run is read")


class Https(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        set_up(cls, CHAR_GPT)
        cls.trust = ["--cacert", cls.ours.certificate]

    @staticmethod
    def tls(certificate):
        return ["--tls-cert", certificate[0], "--tls-key", certificate[1]]

    def test_options_that_cannot_work(self):
        for flags, text in ((["--token-file", self.token, "--allow-remote"], f"--token-file '{self.token}': needs --tls-cert"),
                            (self.tls((self.server[0], self.client[1])), f"--tls-key '{self.client[1]}': is not the key of the certificate"),
                            (["--client-ca", self.ours.certificate], "needs --tls-cert")):
            done = subprocess.run([PTQWATCH, "serve", self.run_dir, "--http", "127.0.0.1:0", "--grpc", "off", *flags], capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (1, "", 1), done.stderr)
            self.assertIn(text, done.stderr)

    def test_certificate(self):
        with HttpsServer(*self.tls(self.server)) as server:
            self.assertEqual(server.scheme, "https")
            for versions in ([], ["--tls-max", "1.2"]):
                code, status, body, _ = server.curl("/metrics", *self.trust, *versions)
                self.assertEqual((code, status), (OK, 200))
                self.assertIn("ptqwatch_", body)
            self.assertEqual(server.curl("/metrics", *self.trust, "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0")[0], CONNECT)
            self.assertEqual(server.curl("/metrics", "--cacert", self.theirs.certificate)[0], NOT_TRUSTED)
            code, status, body, _ = server.curl("/metrics", scheme="http")
            self.assertEqual((code, status, body), (OK, 400, "this server speaks TLS: use https://\n"))
        with HttpsServer(*self.tls(self.ours.issue("elsewhere", names="DNS:elsewhere.example"))) as server:
            code, _, _, message = server.curl("/metrics", *self.trust)
            self.assertEqual(code, NOT_TRUSTED)
            self.assertIn("no alternative certificate subject name matches", message)
        with HttpsServer() as server:
            code, _, _, message = server.curl("/metrics", *self.trust, scheme="https")
            self.assertEqual(code, CONNECT)
            self.assertIn("wrong version number", message)
            self.assertEqual(server.curl("/metrics", "-b", "big=" + "x" * 7000)[:2], (OK, 200))

    def test_mutual_certificates(self):
        stranger, expired = self.theirs.issue("stranger", names="DNS:client"), self.ours.issue("expired-client", days=-1)
        with HttpsServer(*self.tls(self.server), "--client-ca", self.ours.certificate) as server:
            for path in ("/metrics", "/healthz", "/"):
                self.assertEqual(server.curl(path, *self.trust, "--cert", self.client[0], "--key", self.client[1])[:2], (OK, 200), path)
                code, status, _, message = server.curl(path, *self.trust)
                self.assertEqual((code, status), (ALERT, 0), message)
                self.assertIn("certificate required", message)
            for one, why in ((stranger, "unknown ca"), (expired, "certificate expired")):
                code, _, _, message = server.curl("/metrics", *self.trust, "--cert", one[0], "--key", one[1])
                self.assertEqual(code, ALERT, message)
                self.assertIn(why, message)

    def test_token(self):
        with HttpsServer(*self.tls(self.server), "--token-file", self.token) as server:
            def ask(path, *flags):
                return server.curl(path, *self.trust, *flags)[1]

            for path in ("/metrics", "/", "/api/v1/status", "/api/v1/reports"):
                self.assertEqual(ask(path), 401, path)
                self.assertEqual(ask(path, "-H", f"Authorization: Bearer {TOKEN[:-1]}x"), 401, path)
                self.assertEqual(ask(path, "-u", "me:wrong"), 401, path)
                self.assertEqual(ask(path, "-H", f"Authorization: Bearer {TOKEN}"), 200, path)
                self.assertEqual(ask(path, "-u", f"me:{TOKEN}"), 200, path)
            self.assertIn("WWW-Authenticate: Basic realm=\"ptqwatch\"", server.curl("/", *self.trust, "-i")[2])
            self.assertEqual(server.curl("/readyz", *self.trust)[2], "ready\n")
            self.assertIn('"run":"run"', server.curl("/readyz", *self.trust, "-u", f":{TOKEN}")[2])

    def test_replaced_certificate_is_served(self):
        live = [os.path.join(self.folder, "live" + end) for end in (".pem", ".key")]

        def replace(files):
            for new, old in zip(files, live):
                shutil.copy(new, old + ".tmp")
                os.replace(old + ".tmp", old)

        replace(self.server)
        with HttpsServer(*self.tls(live)) as server:
            self.assertEqual(server.curl("/metrics", *self.trust)[:2], (OK, 200))
            replace(self.ours.issue("late", days=-1))  # an expired certificate: the previous one stays
            replace(self.theirs.issue("renewed"))
            eventually(lambda: server.curl("/metrics", "--cacert", self.theirs.certificate)[1] == 200, "the new certificate is served", 30)
            self.assertEqual(server.curl("/metrics", *self.trust)[0], NOT_TRUSTED)

    def test_real_prometheus(self):
        jobs = {  # name: (settings, expected result of its scrapes)
            "good": ("https", self.ours.certificate, self.token, ""),
            "wrong-token": ("https", self.ours.certificate, self.wrong_token, "401"),
            "no-token": ("https", self.ours.certificate, None, "401"),
            "wrong-authority": ("https", self.theirs.certificate, self.token, "unknown authority"),
            "no-tls": ("http", None, None, "400")}
        with HttpsServer(*self.tls(self.server), "--token-file", self.token) as server:
            config = "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n"
            for name, (scheme, authority, token, _) in jobs.items():
                config += f"  - job_name: {name}\n    scheme: {scheme}\n"
                config += f"    tls_config: {{ca_file: '{authority}'}}\n" if authority else ""
                config += f"    authorization: {{credentials_file: '{token}'}}\n" if token else ""
                config += f"    static_configs:\n      - targets: ['localhost:{server.port}']\n"
            prometheus = Prometheus(self.folder, config)
            try:
                prometheus.wait('ptqwatch_snapshot_step{job="good"} == 80')
                for name, (_, _, _, says) in jobs.items():
                    def target(name=name):
                        return next(target for target in prometheus.get("targets")["activeTargets"] if target["scrapePool"] == name)

                    # A scrape may last too long on a busy machine; the next one says the same.
                    eventually(lambda: target()["health"] == ("down" if says else "up") and says in target()["lastError"], target)
                    up = f'up{{job="{name}"}} == {0 if says else 1}'
                    self.assertTrue(prometheus.wait(up), name)
            finally:
                prometheus.stop()


if __name__ == "__main__":
    CHAR_GPT, PTQWATCH = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
