"""The verbs of the command line by name: each is one dataclass, a thin layer over the library.

The fields of a verb are its options. Its docstring is its help, and the first line appears in the list of verbs.
Modules that need torch are imported inside `run`, so that help is quick.
"""

from typing import Any, ClassVar, Protocol

from npdraw.cli.complete import Complete
from npdraw.cli.edit import Edit
from npdraw.cli.evaluate import Evaluate
from npdraw.cli.info import Info
from npdraw.cli.models import Models
from npdraw.cli.sample import Animate, Reconstruct, Sample
from npdraw.cli.sets import Bank, DataInfo, DataShow, Parse
from npdraw.cli.studio import Studio
from npdraw.cli.sweep import Sweep
from npdraw.cli.train import Demo, Train


class Verb(Protocol):
    """A verb as `main` uses it: a dataclass with a method `run`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def run(self) -> None: ...


VERBS: dict[str, type[Verb]] = {
    "demo": Demo,
    "bank": Bank,
    "parse": Parse,
    "train": Train,
    "sample": Sample,
    "reconstruct": Reconstruct,
    "edit": Edit,
    "complete": Complete,
    "animate": Animate,
    "studio": Studio,
    "evaluate": Evaluate,
    "sweep": Sweep,
    "models": Models,
    "info": Info,
    "data show": DataShow,
    "data info": DataInfo,
}
