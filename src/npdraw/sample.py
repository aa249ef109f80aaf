"""`Sample`: pictures that a model drew, with their drawings."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from npdraw.drawing import Drawing

if TYPE_CHECKING:
    from PIL.Image import Image


class _Drawn(NamedTuple):
    images: Tensor  # (B,C,H,W)
    canvases: Tensor  # (B,C,h,w), of the drawings
    drawing: Drawing
    sketch: Drawing


class Sample(_Drawn):
    """Pictures drawn by the model, their drawings, and the prior's sketches that they started from. A notebook shows
    the pictures.

    With a likelihood, drawing and sketch are the same. A flow improves on a sketch, so its drawing is the parse of the
    picture.
    """

    inverted = False
    """Whether light and dark are exchanged in the images (`NPDraw.to_display`). Here they are exchanged back."""

    def sheet(self) -> "Image":
        """The pictures side by side, as a person sees them."""
        from npdraw import show

        return show.grid(self._seen())

    def show(self) -> None:
        """Open the pictures in this machine's viewer."""
        self.sheet().show()

    def save(self, folder: str | Path) -> None:
        """Write grid.png, the pictures as images/0000.png and so on, and drawings.json."""
        from npdraw import show, store

        folder = Path(folder)
        show.save_picture(self.sheet(), folder / "grid.png")
        for i, image in enumerate(self._seen()):
            show.save_picture(show.picture(image), folder / "images" / f"{i:04d}.png")
        store.save_drawing(self.drawing, folder / "drawings.json")

    def _seen(self) -> Tensor:
        return 1 - self.images if self.inverted else self.images

    def _repr_png_(self) -> bytes:
        from npdraw import show

        return show.png(self.sheet())
