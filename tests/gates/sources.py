"""Code that the gates share: the project's source files, their text without comments, and their includes."""

import functools
import json
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("libmonitor", "proto", "exporters", "python", "tools", "examples", "tests")
PRODUCT = ("libmonitor", "proto", "exporters", "tools")
PUBLIC = "libmonitor/include/ptqwatch"

# Folders that a quoted #include is looked up in, after that of the including file.
SEARCH = ("proto", "proto/client/include", "libmonitor", "libmonitor/include", "exporters/page/include", "exporters/serve/include", "exporters", "proto/conversion", "tools/common", "tools/ptqwatch", "examples/common", "examples/char_gpt",
          "examples/functional", "examples/ranks", "python/src", "tests")

_INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
_TOKENS = re.compile(r'R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)"'  # raw string
                     r'|"(?:\\.|[^"\\\n])*"'                   # string
                     r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"   # character, but no digit separator
                     r'|//[^\n]*|/\*.*?\*/', re.S)


def files(folders=FOLDERS, suffixes=(".cc", ".h", ".cu", ".cuh")):
    """Paths relative to the root, sorted; a suffix "" stands for scripts, which start with #!."""
    found = []
    for folder in folders:
        for where, names, leaves in os.walk(ROOT / folder):
            names[:] = [name for name in names if name not in ("build", "__pycache__", "data")]
            for leaf in leaves:
                path = pathlib.Path(where, leaf)
                if path.suffix not in suffixes:
                    continue
                if path.suffix == "" and not path.read_bytes().startswith(b"#!"):
                    continue
                found.append(path.relative_to(ROOT).as_posix())
    return sorted(found)


@functools.lru_cache(maxsize=None)
def text(path):
    return (ROOT / path).read_text()


def bare(source, keep_strings=False):
    """C++ without comments, and with the contents of its literals blanked; line breaks stay where they are."""
    def blank(match):
        token = match.group()
        breaks = "\n" * token.count("\n")
        if token.startswith("//") or token.startswith("/*"):
            return breaks or " "
        return token if keep_strings else token[0] + breaks + token[-1]
    return _TOKENS.sub(blank, source)


@functools.lru_cache(maxsize=None)
def includes(path):
    """What the file includes itself: (name, path of the project's file or None) for each #include."""
    found = []
    for bracket, name in _INCLUDE.findall(bare(text(path), keep_strings=True)):
        resolved = None
        if bracket == '"':
            for folder in (os.path.dirname(path),) + SEARCH:
                candidate = os.path.normpath(f"{folder}/{name}")
                if (ROOT / candidate).is_file():
                    resolved = candidate
                    break
        found.append((name, resolved))
    return tuple(found)


@functools.lru_cache(maxsize=None)
def seen_by(path):
    """All that the file includes, directly or through the project's headers: {name or path: the file that includes it}."""
    seen = {}
    waiting = [path]
    while waiting:
        here = waiting.pop()
        for name, resolved in includes(here):
            if (resolved or name) not in seen:
                seen[resolved or name] = here
                if resolved:
                    waiting.append(resolved)
    return seen


def compile_commands(build_dir):
    """(absolute path, command) of every source that CMake compiles, of those in a unity file, too."""
    for entry in json.loads(pathlib.Path(build_dir, "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if file.parent.name != "Unity":
            yield file, entry["command"]
            continue
        for path in re.findall(r'^#include "(.*)"$', file.read_text(), re.M):
            yield pathlib.Path(os.path.normpath(path)), entry["command"]


def report(gate, complaints, checked):
    """Prints the complaints and returns the exit status."""
    for complaint in complaints:
        print(complaint)
    print(f"{gate}: {checked}, {len(complaints)} complaint{'s' * (len(complaints) != 1)}")
    return 1 if complaints else 0
