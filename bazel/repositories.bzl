"""What ptqwatch needs besides itself, for a WORKSPACE file: Debian's packages under /usr, and LibTorch."""

load("//bazel:libtorch.bzl", "libtorch_repository")

def _written(context):
    context.file("WORKSPACE")
    for path, text in context.attr.files.items():
        context.file(path, text)

_written_repository = repository_rule(_written, attrs = {"files": attr.string_dict()}, local = True)

# Rules that Bazel has built in and looks up in repositories it would download; Debian's copies of those are too new for Debian's Bazel.
_RULES = {
    "rules_cc": ("cc", ["cc_binary", "cc_import", "cc_library", "cc_test", "cc_toolchain", "cc_toolchain_suite"]),
    "rules_java": ("java", ["java_binary", "java_import", "java_library", "java_runtime", "java_toolchain"]),
}

def ptqwatch_repositories():
    """Declares those repositories that the WORKSPACE file has not declared before."""
    known = native.existing_rules()
    if "system_libs" not in known:
        native.new_local_repository(name = "system_libs", build_file = "@ptqwatch//bazel:system_libs.BUILD", path = "/usr")
    if "libtorch" not in known:
        libtorch_repository(name = "libtorch")
    for name, (folder, rules) in _RULES.items():
        if name not in known:
            _written_repository(name = name, files = {
                folder + "/BUILD": "",
                folder + "/defs.bzl": "\n".join(["{0} = native.{0}".format(rule) for rule in rules]) + "\n",
            })

    # Every test depends on it; what it would download is needed for measuring coverage only.
    if "remote_coverage_tools" not in known:
        _written_repository(name = "remote_coverage_tools", files = {
            "BUILD": "filegroup(name = 'coverage_report_generator', visibility = ['//visibility:public'])\n",
        })
