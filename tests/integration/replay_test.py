#!/usr/bin/env python3
"""`ptqwatch replay` on a trainer's journal: replay_test.py CHAR_GPT PTQWATCH [unittest arguments]"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from trainer import journal, train

CHAR_GPT, PTQWATCH = None, None


def replay(*arguments, text=None):
    done = subprocess.run([PTQWATCH, "replay", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


class Replay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.run_dir = os.path.join(cls.folder.name, "run")
        train(CHAR_GPT, "--steps", "240", "--every", "20", "--wait", "on", "--http", "off", "--grpc", "off", "--methods", "gptq",
              "--bits", "3", "--run-dir", cls.run_dir)
        cls.file = os.path.join(cls.run_dir, "journal.jsonl")
        with open(cls.file, encoding="utf-8") as file:
            cls.text = file.read()
        cls.reports = journal(cls.run_dir)[0]

    def test_gives_the_journal_again(self):
        for arguments, text in (([self.run_dir], None), ([self.file], None), (["-"], self.text)):
            code, out, err = replay(*arguments, "--json", text=text)
            self.assertEqual((code, err), (0, ""))
            self.assertEqual([json.loads(line) for line in out.splitlines()], self.reports)

    def test_shows_a_table(self):
        code, out, err = replay(self.run_dir)
        self.assertEqual((code, err), (0, ""))
        header, *rows, last = out.splitlines()
        self.assertEqual(header.split(), ["step", "lr", "phase", "watched", "verdict"])
        self.assertEqual([row.split()[0] for row in rows], [str(report["step"]) for report in self.reports])
        self.assertIn(self.reports[0]["verdict"]["summary"], rows[0])
        self.assertTrue(last.startswith(f"{len(rows)} reports, "), last)

    def test_reads_the_parts_of_a_journal(self):
        with tempfile.TemporaryDirectory() as parts:
            lines = self.text.splitlines(keepends=True)
            for name, part in (("journal-000001.jsonl", lines[:3]), ("journal-000002.jsonl", lines[3:6]),
                               ("journal.jsonl", lines[6:])):
                with open(os.path.join(parts, name), "w", encoding="utf-8") as file:
                    file.writelines(part)
            self.assertEqual(replay(parts, "--json"), replay(self.run_dir, "--json"))

    def test_counts_damaged_lines(self):
        damaged = self.text[:1000] + "\n" + self.text
        code, out, err = replay("-", text=damaged)
        self.assertEqual((code, err), (0, "ptqwatch: '-': skipped 1 unreadable line\n"))
        self.assertIn(f"\n{len(self.reports)} reports, ", out)

    def test_says_what_is_wrong(self):
        events = "".join(line for line in self.text.splitlines(keepends=True) if '"event"' in line[:9])
        for arguments, text, code, says in (([], None, 2, "JOURNAL"), (["/nowhere/journal"], None, 1, "'/nowhere/journal'"),
                                            ([self.folder.name], None, 1, f"no journal in '{self.folder.name}'"),
                                            (["-"], "", 1, "empty"), (["-"], events, 1, "only")):
            with self.subTest(arguments=arguments, text=text):
                result = replay(*arguments, text=text)
                self.assertEqual(result[0], code, result)
                self.assertIn(says, result[2])
                self.assertLessEqual(len(result[2].splitlines()), 1)


if __name__ == "__main__":
    CHAR_GPT, PTQWATCH = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main(verbosity=2)
