"""Which models there are, where they come from and where they lie; importing this loads no torch."""

from ragen.models.catalogue import CATALOGUE, CatalogueEntry, fetched_dir, models_root
from ragen.models.resolve import resolve_model

__all__ = ["CATALOGUE", "CatalogueEntry", "fetched_dir", "models_root", "resolve_model"]
