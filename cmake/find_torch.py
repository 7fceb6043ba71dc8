"""Prints the folder of TorchConfig.cmake of the torch that this interpreter imports outside of a build by pip, which hides it. Prints
nothing if there is no torch."""

import importlib.util
import os
import site
import sys

for folder in site.getsitepackages():
    site.addsitedir(folder)
if sys.prefix == sys.base_prefix:  # not in a virtual environment
    site.addsitedir(site.getusersitepackages())
torch = importlib.util.find_spec("torch")
for folder in torch.submodule_search_locations or () if torch else ():
    config = os.path.join(folder, "share", "cmake", "Torch")
    if os.path.exists(os.path.join(config, "TorchConfig.cmake")):
        print(config)
        break
