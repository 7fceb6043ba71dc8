"""LibTorch as @libtorch, from where cmake/FindLibTorch.cmake takes it: Torch_DIR, or the copy that ./setup keeps."""

def _version(context):
    for line in context.read(Label("//cmake:FindLibTorch.cmake")).split("\n"):
        if line.startswith("set(_ptqwatch_default_torch "):
            return line.split(" ")[1].rstrip(")")
    fail("cmake/FindLibTorch.cmake names no version of LibTorch")

def _folders(context):
    environment = context.os.environ
    if environment.get("Torch_DIR"):
        return ["%s/../../.." % environment["Torch_DIR"]]
    cache = environment.get("XDG_CACHE_HOME") or environment.get("HOME", "") + "/.cache"
    return ["%s/ptqwatch/libtorch-%s-%s/torch" % (cache, _version(context), variant) for variant in ("cuda", "cpu")]

def _libtorch(context):
    folders = _folders(context)
    found = [context.path(folder) for folder in folders if context.path(folder + "/lib/libtorch_cpu.so").exists]
    if not found:
        fail("LibTorch is in none of %s. Run ./setup, or set Torch_DIR to the folder of TorchConfig.cmake." % ", ".join(folders))
    lib = str(found[0]) + "/lib"
    context.symlink(str(found[0]) + "/include", "include")

    # ATen must see the OpenMP library it was built with, which the zip calls libgomp-HASH.so.1.
    gomp = [file.basename for file in found[0].get_child("lib").readdir() if file.basename.startswith("libgomp")]
    libraries = ["-ltorch_cpu", "-lc10"] + ["-l:" + file for file in gomp]
    context.file("BUILD.bazel", """\
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "libtorch",
    hdrs = glob(["include/**"]),
    includes = ["include", "include/torch/csrc/api/include"],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
""".format(linkopts = ["-L" + lib, "-Wl,-rpath," + lib, "-Wl,--no-as-needed"] + libraries + ["-Wl,--as-needed"]))

libtorch_repository = repository_rule(_libtorch, environ = ["HOME", "Torch_DIR", "XDG_CACHE_HOME"], local = True)
