"""The rules of our BUILD files. Flags and link options are those of cmake/TargetDefaults.cmake, in its order."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

_BEFORE = [
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wconversion",
    "-Wno-sign-conversion",
    # The codes of a quantized weight depend on the last bit.
    "-ffp-contract=off",
]
_AFTER = [
    "-fstack-protector-strong",
    "-fstack-clash-protection",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
]
_AFTER_ON_X86 = ["-fcf-protection"]
_LINK = ["-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"]

def _options(position, folders, copts):
    # Folders are named from the root of this repository, which is another's subfolder where another uses us.
    root = Label("//bazel:defs.bzl").workspace_root
    includes = ["-I" + (root + "/" if root else "") + folder for folder in folders]
    x86 = select({"@platforms//cpu:x86_64": _AFTER_ON_X86, "//conditions:default": []})
    werror = select({"//bazel:werror": ["-Werror"], "//conditions:default": []})
    return includes + [position] + _BEFORE + werror + _AFTER + x86 + copts + ["-std=c++20"]

def ptqwatch_library(name, folders = [], copts = [], **kwargs):
    """A static library. folders: where it, but not who links it, finds headers."""
    cc_library(name = name, copts = _options("-fPIC", folders, copts), linkstatic = True, **kwargs)

def ptqwatch_binary(name, folders = [], copts = [], **kwargs):
    cc_binary(name = name, copts = _options("-fPIE", folders, copts), linkopts = _LINK, **kwargs)

_TEST_FOLDERS = ["libmonitor", "tests"]
_TEST_HEADERS = ["//libmonitor:headers", "//tests/golden:headers", "//tests/support:headers", "//tests/unit:headers"]

def ptqwatch_test_binary(folders = [], deps = [], **kwargs):
    """A program that may include what tests may: the library's rooms and tests/."""
    ptqwatch_binary(folders = _TEST_FOLDERS + folders, deps = deps + _TEST_HEADERS, **kwargs)

def ptqwatch_test(name, folders = [], copts = [], deps = [], size = "medium", **kwargs):
    """A program of googletest's."""
    cc_test(
        name = name,
        copts = _options("-fPIE", _TEST_FOLDERS + folders, copts + ["-DGTEST_HAS_PTHREAD=1"]),
        linkopts = _LINK,
        linkstatic = True,
        size = size,
        deps = deps + _TEST_HEADERS + ["@system_libs//:gtest"],
        **kwargs
    )

def ptqwatch_program_test(name, args, size = "medium", data = [], **kwargs):
    """A program and its arguments; it fails where the program does."""
    native.sh_test(name = name, srcs = ["//bazel:run.sh"], args = args, data = data, size = size, **kwargs)
