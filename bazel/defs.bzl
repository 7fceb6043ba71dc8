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

def ptqwatch_test(name, folders = [], copts = [], deps = [], **kwargs):
    """A program of googletest's."""
    cc_test(
        name = name,
        copts = _options("-fPIE", folders, copts + ["-DGTEST_HAS_PTHREAD=1"]),
        linkopts = _LINK,
        linkstatic = True,
        deps = deps + ["@system_libs//:gtest"],
        **kwargs
    )
