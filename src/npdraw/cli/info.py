"""The verb `info`."""

from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional, arg

from npdraw.cli.options import Maybe, yaml_text
from npdraw.config import Config, to_dict
from npdraw.progress import say
from npdraw.words import last_names


@dataclass
class Info:
    """Print what is installed, the presets and the models; or the parameters and settings of one model.

    Example: npdraw info runs/digits
    """

    model: Annotated[Positional[Maybe[str]], arg(metavar="MODEL")] = None
    """A run, a saved model or a model by name."""

    def run(self) -> None:
        import torch

        from npdraw import __version__, pretrained, store
        from npdraw.canvas import Grid
        from npdraw.cli.plan import parameters
        from npdraw.device import pick_device

        if self.model is not None:
            model = store.load_model(self.model)
            say(f"{self.model}: T = {model.grid.cells} steps, bank: {model.bank.extra_repr()}")
            say(parameters(model))
            if not model.has_likelihood:
                flow = model.config.decoder
                guided = f", guidance {flow.guidance:g}" if flow.guidance else ""
                drawn = f"{flow.evaluations} evaluations, freedom {flow.freedom:g}{guided}"
                say(f"decoder: a flow, without a likelihood; {drawn}")
            made, config = store.provenance(self.model), to_dict(model.config)
            if scored := store.shipped_scores(self.model):
                made, config["init"] = _whole(scored["made"], model.config), last_names(config["init"])
            say(yaml_text({"made by": made}) if made else "made by: not recorded")
            say(yaml_text(config))
            return
        device = pick_device("auto")
        name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
        say(f"npdraw {__version__}, torch {torch.__version__}, device {device} ({name})")
        say("presets:")
        for preset, path in store.presets().items():
            c = store.read_config(path)
            size = f"{c.data.width} x {c.data.height} {'colour' if c.data.channels == 3 else 'grey'}"
            cells = Grid(*c.canvas_size, c.bank.part_size).cells
            say(f"  {preset:13} {size}, K = {c.bank.part_size}, M = {c.bank.parts}, T = {cells}")
        say(f"models: {', '.join(pretrained.listed())}; npdraw models says where they are")


def _whole(made: dict[str, Any], config: Config) -> dict[str, Any]:
    """How a shipped model was made, from its scores.json: all spells of training. The weights only know the last."""
    from npdraw import store

    rest = {name: value for name, value in made.items() if value and name not in ("epochs", "prior_epoch")}
    command = last_names(made.get("command", "not recorded"))
    return {**rest, "command": command, "trained": store.all_spells(made, config)}
