"""Conan 2 recipe: `conan create packaging/conan --build=missing -c tools.build:jobs=2`, with Torch_DIR in the environment.

LibTorch is not in ConanCenter: Torch_DIR leads to the folder of its TorchConfig.cmake. The live page needs Debian's Chart.js, so that
ptqwatch::serve and the program `ptqwatch` are left to other ways of building."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Ptqwatch(ConanFile):
    name = "ptqwatch"
    description = "Watches, inside the training loop, whether a model will survive post-training quantization"
    license = "Apache-2.0"
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"client": [True, False], "torch": [True, False]}
    default_options = {"client": False, "torch": True}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        header = load(self, os.path.join(self._root, "libmonitor/include/ptqwatch/config.h"))
        self.version = re.search(r'PTQWATCH_VERSION_STRING "([\d.]+)"', header).group(1)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "libmonitor/*", "proto/*", "exporters/*", "dashboards/*"):
            copy(self, pattern, self._root, self.export_sources_folder)

    def requirements(self):
        self.requires("abseil/[>=20220623.0 <20240117]", transitive_headers=True, transitive_libs=True)
        self.requires("nlohmann_json/[>=3.11 <4]")
        self.requires("highway/[>=1.0 <2]")
        self.requires("utfcpp/[>=3.2 <5]")
        self.requires("xxhash/[>=0.8 <0.9]")
        if self.options.client:
            self.requires("grpc/[>=1.50 <1.60]")

    def build_requirements(self):
        if self.options.client:
            self.tool_requires("protobuf/<host_version>")
            self.tool_requires("grpc/<host_version>")

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("ptqwatch runs on Linux")
        if self.options.torch and not os.environ.get("Torch_DIR"):
            raise ConanInvalidConfiguration("set Torch_DIR to the folder of LibTorch's TorchConfig.cmake, or -o ptqwatch/*:torch=False")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        switches = {"PTQWATCH_WITH_TORCH": self.options.torch, "PTQWATCH_WITH_GRPC": self.options.client}
        for name in ("WITH_SERVE", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_BENCHMARKS", "BUILD_TOOLS", "SHARED"):
            switches[f"PTQWATCH_{name}"] = False
        for name, value in switches.items():
            toolchain.cache_variables[name] = bool(value)
        toolchain.generate()
        dependencies = CMakeDeps(self)
        dependencies.set_property("abseil", "cmake_file_name", "absl")
        dependencies.set_property("highway", "cmake_file_name", "hwy")
        dependencies.set_property("highway", "cmake_target_name", "hwy::hwy")
        dependencies.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # The package's own CMake files know its targets and what they need.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "ptqwatch"))
