#!/usr/bin/env python3
"""A trainer has no server in its process, and nothing that only servers need:   link_closure_test.py CHAR_GPT"""

import re
import subprocess
import sys
import unittest

CHAR_GPT = sys.argv[1]
SERVERS_NEED = r"\b(grpc|grpc_core|google::protobuf|prometheus|boost|httplib)::|\b(SSL|EVP|X509)_[a-z]"
ANY_PROGRAM = r"(linux-vdso|ld-linux|libc|libm|libstdc\+\+|libgcc_s|libdl|libpthread|librt)\b"
# Highway chooses the kernels of the quantization engine; the toolkit's libraries belong to a build for GPUs.
OURS = r"libabsl_|libhwy\.|libcu\w+\.|libnvJitLink\."


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries(binary):
    """The libraries loaded with a program: {name: path}."""
    return {line.split()[0].rsplit("/", 1)[-1]: line.split()[-2] for line in run("ldd", binary).splitlines() if line.split()}


class LinkClosure(unittest.TestCase):
    def test_loads_what_a_program_with_libtorch_does_and_absl(self):
        loaded = libraries(CHAR_GPT)
        torch = {name: path for name, path in loaded.items() if "/torch/lib/" in path}
        self.assertIn("libtorch_cpu.so", torch)
        of_torch = set(torch).union(*(libraries(path) for path in torch.values()))
        ours = {name for name in loaded if name not in of_torch and not re.match(ANY_PROGRAM, name)}
        self.assertEqual({name for name in ours if not re.match(OURS, name)}, set())

    def test_names_nothing_that_servers_need(self):
        named = [line for line in run("nm", "-C", CHAR_GPT).splitlines() if re.search(SERVERS_NEED, line)]
        self.assertEqual(named, [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
