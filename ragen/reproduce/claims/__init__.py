"""One file for each claim: c05_filter_delays_collapse.py holds `CLAIM`. A file that is added is a claim more."""

from importlib import import_module
from pkgutil import iter_modules

from ragen.reproduce.claim import Claim


def _load() -> dict[str, Claim]:
    """Name -> claim, in the order of their numbers."""
    modules = sorted(module.name for module in iter_modules(__path__))
    claims = [import_module(f"{__name__}.{module}").CLAIM for module in modules]
    return {claim.name: claim for claim in sorted(claims, key=lambda claim: claim.number)}


CLAIMS = _load()
