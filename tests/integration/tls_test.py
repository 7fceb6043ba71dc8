#!/usr/bin/env python3
"""Servers with certificates and tokens, and clients with the right, wrong and expired ones: tls_test.py CHAR_GPT PTQWATCH [unittest arguments]"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from trainer import CACHE, Server, train

sys.path.insert(0, os.path.join(CACHE, "python-grpc"))
import grpc  # noqa: E402
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase  # noqa: E402

CHAR_GPT, PTQWATCH = None, None
HERE = "DNS:localhost,IP:127.0.0.1"
TOKEN = "correct-horse-battery"


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Authority:
    """Signs certificates, in PEM files of a folder."""

    def __init__(self, folder, name):
        self.folder = folder
        self.certificate, self.key = self.path(name + ".pem"), self.path(name + ".key")
        openssl("req", "-x509", *self.new_key(self.key), "-out", self.certificate, "-days", "2", "-subj", "/CN=" + name)

    def path(self, name):
        return os.path.join(self.folder, name)

    @staticmethod
    def new_key(path):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]

    def issue(self, name, days=2, names=HERE):
        """Issues a certificate and returns (certificate, key). With negative days it has expired."""
        certificate, key, request, extra = (self.path(name + end) for end in (".pem", ".key", ".csr", ".ext"))
        openssl("req", *self.new_key(key), "-out", request, "-subj", "/CN=" + name)
        with open(extra, "w", encoding="utf-8") as file:
            file.write(f"subjectAltName={names}\n")
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-out", certificate,
                "-days", str(days), "-extfile", extra)
        return certificate, key


def ptqwatch(*arguments):
    done = subprocess.run([PTQWATCH, *arguments], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def serve(*flags):
    return Server(PTQWATCH, Tls.run_dir, *flags, http="off")


def set_up(cls, char_gpt):
    """Gives a class of tests a run, certificates and tokens."""
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.folder = folder.name
    cls.run_dir = os.path.join(cls.folder, "run")
    train(char_gpt, "--steps", "80", "--wait", "on", "--http", "off", "--grpc", "off", "--methods", "rtn", "--run-dir", cls.run_dir)
    cls.ours, cls.theirs = Authority(cls.folder, "ours"), Authority(cls.folder, "theirs")
    cls.server, cls.client = cls.ours.issue("server"), cls.ours.issue("client", names="DNS:client")
    cls.token, cls.wrong_token = os.path.join(cls.folder, "token"), os.path.join(cls.folder, "wrong-token")
    for path, text in ((cls.token, TOKEN), (cls.wrong_token, TOKEN[:-1] + "x")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        set_up(cls, CHAR_GPT)

    def serve_flags(self, certificate=None):
        certificate = certificate or self.server
        return ["--tls-cert", certificate[0], "--tls-key", certificate[1]]

    def refused(self, text, *flags):
        """Expects one line with `text` on standard error, no later than the call's timeout."""
        code, out, err = ptqwatch("status", *flags)
        self.assertEqual((code, out, len(err.splitlines())), (1, "", 1), err)
        self.assertIn(text, err)

    def answered(self, *flags):
        deadline = time.monotonic() + 30
        code, out, err = ptqwatch("status", *flags)
        while "there is no run yet" in err and time.monotonic() < deadline:  # the journal is being read
            code, out, err = ptqwatch("status", *flags)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("step       80", out)

    def test_server_options_that_cannot_work(self):
        expired = self.ours.issue("expired", days=-1)
        for flags, text in (
                (["--tls-cert", self.server[0]], f"--tls-cert '{self.server[0]}': needs --tls-key"),
                (["--client-ca", self.server[0]], "needs --tls-cert"),
                (self.serve_flags((self.server[0], self.client[1])), f"--tls-key '{self.client[1]}': is not the key of the certificate"),
                (self.serve_flags(expired), f"--tls-cert '{expired[0]}': expired on "),
                (self.serve_flags((self.token, self.token)), f"--tls-cert '{self.token}': holds no certificate"),
                ([*self.serve_flags(), "--client-ca", "/nowhere"], "--client-ca '/nowhere': cannot be read: No such file"),
                (["--token-file", "/nowhere"], "--token-file '/nowhere': cannot be read: No such file"),
                (["--token-file", self.token, "--allow-remote"], f"--token-file '{self.token}': needs --tls-cert")):
            code, out, err = ptqwatch("serve", self.run_dir, "--http", "off", "--grpc", "127.0.0.1:0", *flags)
            self.assertEqual((code, out, len(err.splitlines())), (1, "", 1), err)
            self.assertIn(text, err)

    def test_client_options_that_cannot_work(self):
        for flags, text in ((["--ca", "/nowhere"], "--ca: '/nowhere' cannot be read: No such file"),
                            (["--cert", self.client[0]], "--cert requires --key"),
                            (["--token-file", os.devnull], "is empty")):
            code, out, err = ptqwatch("status", ":1", *flags)
            self.assertEqual((code, out, len(err.splitlines())), (2, "", 1), err)
            self.assertIn(text, err)

    def test_certificate(self):
        with serve(*self.serve_flags()) as server:
            self.answered(server.address, "--ca", self.ours.certificate)
            code, out, err = ptqwatch("watch", server.address, "--ca", self.ours.certificate, "--json")
            self.assertEqual((code, err), (0, ""))
            self.assertIn('"step":80', out)
            self.refused("if it speaks TLS, give --ca or --tls", server.address)
            self.refused("not signed by the authorities of --ca", server.address, "--ca", self.theirs.certificate)
            for version, code in (("-tls1_3", 0), ("-tls1_2", 0), ("-tls1_1", 1), ("-tls1", 1)):
                done = subprocess.run(["openssl", "s_client", "-connect", server.address, version, "-cipher", "DEFAULT@SECLEVEL=0", "-alpn", "h2"],
                                      stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
                self.assertEqual(done.returncode, code, version)
        with serve(*self.serve_flags(self.ours.issue("elsewhere", names="DNS:elsewhere.example"))) as server:
            self.refused("its certificate is for another host name", server.address, "--ca", self.ours.certificate)

    def test_mutual_certificates(self):
        stranger = self.theirs.issue("stranger", names="DNS:client")
        expired = self.ours.issue("expired-client", days=-1)
        with serve(*self.serve_flags(), "--client-ca", self.ours.certificate) as server:
            trust = [server.address, "--ca", self.ours.certificate]
            self.answered(*trust, "--cert", self.client[0], "--key", self.client[1])
            self.refused("perhaps it requires a certificate, see --cert", *trust)
            for one in (stranger, expired):
                self.refused("perhaps it does not accept the certificate of --cert", *trust, "--cert", one[0], "--key", one[1])

    def test_token(self):
        with serve("--token-file", self.token) as server:
            self.answered(server.address, "--token-file", self.token)
            self.refused("requires a token, but none was sent (see --token-file)", server.address)
            self.refused("the token is not this server's (see --token-file)", server.address, "--token-file", self.wrong_token)
            code, _, err = ptqwatch("watch", server.address, "--token-file", self.wrong_token, "--timeout", "5")
            self.assertEqual((code, len(err.splitlines())), (1, 1), err)
            with grpc.insecure_channel(server.address) as channel:
                self.assertIn("ptqwatch.v1.MonitorService", ProtoReflectionDescriptorDatabase(channel).get_services())
                call = channel.unary_unary("/ptqwatch.v1.MonitorService/ListRuns")
                with self.assertRaises(grpc.RpcError) as refused:
                    call(b"", timeout=20)
                self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
                for text in ("Bearer correct-horse-battery", "bearer correct-horse-battery"):
                    self.assertTrue(call(b"", timeout=20, metadata=[("authorization", text)]))

    def test_replaced_certificate_is_served(self):
        certificate, key = (shutil.copy(path, os.path.join(self.folder, "live" + end)) for path, end in zip(self.server, (".pem", ".key")))
        renewed = self.theirs.issue("renewed")
        with serve("--tls-cert", certificate, "--tls-key", key) as server:
            self.answered(server.address, "--ca", self.ours.certificate)
            for new, old in zip(renewed, (certificate, key)):
                shutil.copy(new, old + ".tmp")
                os.replace(old + ".tmp", old)
            deadline = time.monotonic() + 60
            while ptqwatch("status", server.address, "--ca", self.theirs.certificate)[0] != 0:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.2)
            self.refused("not signed by the authorities of --ca", server.address, "--ca", self.ours.certificate)


if __name__ == "__main__":
    CHAR_GPT, PTQWATCH = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
