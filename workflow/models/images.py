"""Image files: written without loss, opened with a sentence where they cannot be."""

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from workflow.lib import files
from workflow.lib.errors import BadInput


def save_png(array: np.ndarray, path: str | Path) -> None:
    """Write uint8 (height, width, 3) as a PNG file; equal arrays give equal files."""
    with files.write_atomically(path) as temporary:
        Image.fromarray(array).save(temporary, format="PNG")


def open_image(path: str | Path) -> Image.Image:
    """Return a decoded RGB image.

    Raises
    ------
    BadInput
        Where the file is missing or no image can be decoded from it.
    """
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except FileNotFoundError:
        raise BadInput(f"{path} is missing: build or fetch the images again.") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise BadInput(f"{path} cannot be decoded as an image ({error}): replace it with an intact copy.") from None
