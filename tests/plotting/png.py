"""What tests ask of a figure file."""

from pathlib import Path

import numpy as np
import pytest

image = pytest.importorskip("matplotlib.image")  # tests of figures are skipped without it


def pixels(path: Path) -> np.ndarray:
    """The decoded picture, [height, width, channels] from 0 to 1."""
    return image.imread(path)


def has_drawing(path: Path) -> bool:
    """Whether a picture has colours and contrast, which an empty one lacks."""
    picture = pixels(path)[::2, ::2, :3]
    colours = picture.max(axis=2) - picture.min(axis=2)
    return bool(picture.std() > 0.05 and (colours > 0.3).mean() > 0.0005)
