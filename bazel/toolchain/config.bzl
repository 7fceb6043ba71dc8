"""g++ with the flags that CMake's Release gives it."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:cc_toolchain_config_lib.bzl", "feature", "flag_group", "flag_set", "tool_path", "with_feature_set")

_COMPILE = [ACTION_NAMES.c_compile, ACTION_NAMES.cpp_compile]

def _flags(flags, modes):
    return flag_set(
        actions = _COMPILE,
        flag_groups = [flag_group(flags = flags)],
        with_features = [with_feature_set(features = [mode]) for mode in modes],
    )

def _gcc_config(context):
    tools = {"ar": "/usr/bin/ar", "gcc": "compiler"}
    tools.update({tool: "/usr/bin/" + tool for tool in ("cpp", "gcov", "ld", "nm", "objcopy", "objdump", "strip")})
    return cc_common.create_cc_toolchain_config_info(
        ctx = context,
        abi_libc_version = "local",
        abi_version = "local",
        compiler = "gcc",
        cxx_builtin_include_directories = ["/usr"],
        features = [
            feature(name = "opt"),
            feature(name = "dbg"),
            feature(name = "fastbuild"),
            feature(name = "random_seed"),  # Bazel's own gives each object another flag
            feature(name = "mode_flags", enabled = True, flag_sets = [
                # Bazel knows the headers of a project that uses us by paths through a link, which g++ would resolve.
                _flags(["-fno-canonical-system-headers"], ["opt", "dbg", "fastbuild"]),
                _flags(["-O3", "-DNDEBUG"], ["opt"]),
                _flags(["-g"], ["dbg", "fastbuild"]),
            ]),
        ],
        host_system_name = "local",
        target_cpu = "k8",
        target_libc = "local",
        target_system_name = "local",
        tool_paths = [tool_path(name = name, path = path) for name, path in tools.items()],
        toolchain_identifier = "ptqwatch_gcc",
    )

gcc_config = rule(_gcc_config, provides = [CcToolchainConfigInfo])
