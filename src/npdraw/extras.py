"""Optional packages, which are extras of the wheel (pyproject.toml): work that needs them checks for them first."""

from importlib.util import find_spec

from npdraw.errors import InputError

TRAINING = ("lightning", "kmedoids", "matplotlib", "tensorboard")


def need(what: str, extra: str, *modules: str) -> None:
    """Refuse work whose packages are not installed, before it begins. This does not import them."""
    if missing := [module for module in modules if find_spec(module) is None]:
        them = "it" if len(missing) == 1 else "them"
        raise InputError(f'{what} needs {" and ".join(missing)}; get {them} with `pip install "npdraw[{extra}]"`')
