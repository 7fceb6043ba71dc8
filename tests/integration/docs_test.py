#!/usr/bin/env python3
"""Checks the documents' claims about themselves: docs_test.py SOURCE_DIR [unittest arguments]"""

import os
import re
import sys
import unittest

SOURCE = None
MAX_README_BYTES = 7168


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def pages():
    for folder in ("", "bazel", "docs", os.path.join("tests", "benchmarks"), os.path.join("dashboards", "runbooks")):
        for name in sorted(os.listdir(os.path.join(SOURCE, folder))):
            if name.endswith(".md"):
                yield os.path.join(folder, name)


def anchors(text):
    """The anchors that GitHub makes from a page's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Readme(unittest.TestCase):
    def test_is_short(self):
        self.assertLessEqual(len(read("README.md").encode()), MAX_README_BYTES)

    def test_shows_the_minimal_example(self):
        blocks = re.findall(r"^```cpp\n(.*?)^```$", read("README.md"), re.MULTILINE | re.DOTALL)
        source = read("examples", "minimal", "main.cc")
        self.assertIn(source, blocks)
        self.assertLessEqual(len(source.splitlines()), 40)


class Links(unittest.TestCase):
    def test_lead_to_files_and_headings_that_exist(self):
        for page in pages():
            text = read(page)
            for link in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                with self.subTest(page=page, link=link):
                    target = os.path.normpath(os.path.join(SOURCE, os.path.dirname(page), path)) if path \
                        else os.path.join(SOURCE, page)
                    self.assertTrue(os.path.exists(target))
                    if anchor:
                        with open(target, encoding="utf-8") as file:
                            self.assertIn(anchor, anchors(file.read()))


class Tests(unittest.TestCase):
    def test_that_are_named_exist(self):
        defined = set()
        for folder, _, names in os.walk(os.path.join(SOURCE, "tests")):
            for name in names:
                if name.endswith((".cc", ".h")):
                    defined.update(re.findall(r"(?:\bTEST(?:_F|_P)?\(|\b(?:class|struct) )(\w+)", read(folder, name)))
        for page in pages():
            for name in re.findall(r"`([A-Z]\w*Test)`", read(page)):
                self.assertIn(name, defined, page)


if __name__ == "__main__":
    SOURCE = sys.argv.pop(1)
    unittest.main(verbosity=2)
