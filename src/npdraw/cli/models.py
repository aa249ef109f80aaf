"""The verb `models`."""

from dataclasses import dataclass

from npdraw.progress import say


@dataclass
class Models:
    """List the models that have a name: set, size, FID, licence and location.

    A model "to be fetched" is downloaded when it is first used, and kept.

    Example: npdraw models
    """

    def run(self) -> None:
        from npdraw import pretrained
        from npdraw.evaluation.score import figure

        rows = [("name", "set", "size", "FID", "licence of the images", "where it lies")]
        for name, model in pretrained.listed().items():
            fid = "" if model.fid is None else figure(model.fid)
            found = pretrained.find(name)
            size, place = f"{model.size / 1e6:.1f} MB", found[1] if found else "to be fetched"
            rows.append((name, model.set, size, fid, model.licence, place))
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            say("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        say(f"the cache: {model.folder.parent}")
