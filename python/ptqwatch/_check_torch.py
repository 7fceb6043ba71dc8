"""libtorch keeps its binary interface within a minor version only."""

from ptqwatch import _build


def check_torch() -> None:
    """Raises ImportError if there is no torch, or one of another minor version than this package was built with."""
    wanted = ".".join(_build.TORCH.split(".")[:2])
    advice = f"pip install 'torch=={wanted}.*', or install ptqwatch again beside the torch that you use"
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"ptqwatch {_build.VERSION} was built with torch {_build.TORCH}, and there is no torch: {advice}") from error
    found = str(torch.__version__)
    if found.split("+")[0].split(".")[:2] != wanted.split("."):
        raise ImportError(f"ptqwatch {_build.VERSION} was built with torch {_build.TORCH}, but torch {found} is "
                          f"imported: {advice}")
