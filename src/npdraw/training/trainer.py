"""`train`: trains a model on images in the paper's two stages (stages.py), in a run directory (run.py). It is two
steps: `prepare` refuses what does not fit before anything is written, and `train_prepared` does the work.

A killed run continues from its last checkpoint; loop.py explains why it ends in the same bits.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import Tensor

from npdraw import plots, pretrained, show, store
from npdraw.bank import build_bank
from npdraw.config import Config, changed, fixed
from npdraw.data import ImageSet, Subset, images_digest, select
from npdraw.data.images import shape_text
from npdraw.errors import InputError
from npdraw.evaluation.features import Extractor
from npdraw.evaluation.inception import load_inception
from npdraw.evaluation.kernel import FEWEST
from npdraw.model import NPDraw
from npdraw.progress import Progress
from npdraw.training.augment import resident
from npdraw.training.fabric import make_fabric
from npdraw.training.loop import enough_memory, fit, group
from npdraw.training.provenance import made_by, moved
from npdraw.training.run import Epochs, Run, epochs_of
from npdraw.training.stages import SAMPLES_SHOWN, finish, fit_model, fit_prior, guide_stage
from npdraw.training.timing import steps_per_epoch
from npdraw.words import plural

SCORES = ("validation_fid", "validation_fid_768", "validation_kid")  # the number of images decides which


def train(
    config: Config,
    data: ImageSet,
    folder: str | Path,
    device: str = "cpu",
    quiet: bool = False,
    network: Callable[..., Extractor] = load_inception,
) -> NPDraw:
    """Train a model on a data set in a run directory, or continue the run in that directory.

    `network(device=, progress=)` loads the network for the scores of samples, if the config asks for scores.
    """
    return train_prepared(prepare(config, data, folder), data, device, quiet, network)


def prepare(config: Config, data: ImageSet, folder: str | Path, epochs: Epochs = "same") -> Run:
    """The run of a config, completed by `settle`, in a directory. Nothing is written. `epochs` as in `Run.open`."""
    settled = settle(config, data)
    run = Run.open(folder, settled, older(settled, data).data.digest, epochs)
    if epochs == "new" and run.started:
        check_longer(run, len(select(data, config.split, config.data.validation).train))
    return run


def check_longer(run: Run, count: int) -> None:
    """Refuse a run that would have fewer epochs than it had already, or whose stage two has ended by itself."""
    (stage, step), config = run.reached, run.config
    done = -(-step // steps_per_epoch(config, count)[stage])
    if epochs_of(config)[stage] < done:
        raise InputError(
            f"the run in {run.folder} had {plural(done, 'epoch')} of stage {stage} already; give more than that to "
            "train it longer, or choose another --out"
        )
    patience, waited = config.model_stage.patience, run.load()[2].get("extra.waited")
    if stage == "model" and run.changes and patience and waited is not None and int(waited) >= patience:
        raise InputError(
            f"stage two of the run in {run.folder} has ended, since {plural(patience, 'score')} were not better; to "
            "train it longer, add --model-stage.patience 0"
        )


def older(config: Config, data: ImageSet) -> Config:
    """A settled config as it was when only some of the training images were hashed. Runs from then go on."""
    digest = select(data, config.split, config.data.validation).train.digest_of_some()
    return changed(config, {"data.digest": digest})


def train_prepared(run: Run, data: ImageSet, device: str, quiet: bool, network: Callable[..., Extractor]) -> NPDraw:
    """`train` for a run that `prepare` made with the same data."""
    config, folder = run.config, run.folder
    fabric = make_fabric(config, device)
    fabric.launch()
    run.writes = fabric.is_global_zero
    if run.writes:
        run.made = made_by(f"train(config, {data.name!r}, {str(folder)!r})", config, fabric.device, fabric.world_size)
    parts = select(data, config.split, config.data.validation)
    with ExitStack() as stack, Progress(quiet) as progress:
        _hold(run, fabric, stack, progress)
        scorer = network(device=fabric.device, progress=progress) if config.model_stage.score_every else None
        start = store.load_model(config.init) if config.init else None
        model = _model(run, fabric, start, parts.train, progress)
        training = resident(parts.train, model, config.seed, config.data.mirrored)
        validation = resident(parts.validation, model, 0)
        if run.writes:
            show.save_picture(
                show.bank_picture(model.to_display(model.bank.parts)), run.folder / "pictures" / "bank.png"
            )
        stage, _, tensors = run.load()
        if stage == "prior":
            fit_prior(fabric, run, model, training, validation, progress)
        else:
            if stage == "guide" and not config.model_stage.guide_epochs:
                raise run.misfit("it is of stage guide, which this run does not have")
            own = group(tensors, "weights.model.")
            run.expect(own, model.state_dict(), "weights.model.")
            model.load_state_dict(own)
        if config.model_stage.guide_epochs and stage != "model":
            fit(fabric, run, guide_stage(config, model, training), len(training.pixels), progress)
        teacher = start.to(fabric.device) if start is not None and config.decoder.distilled else None
        kept = fit_model(fabric, run, model, training, validation, progress, scorer, teacher)
        with enough_memory(fabric.device, "the model's sizes"):
            if not model.has_likelihood:
                progress.say(
                    f"model: drawing {SAMPLES_SHOWN} samples and some reconstructions; with a flow this takes a while"
                )
            scores = finish(run, model, validation, kept)
            run.log("done", 0, scores)
            if model.has_likelihood:
                progress.say(f"model: validation ELBO {scores['validation_elbo']:.1f} nats per image")
        if run.writes:
            rows = run.metrics()
            keys = ["total", "validation", "reconstruction", "kl", "regulariser"]
            keys += [key for key in SCORES if any(key in row for row in rows)]
            plots.curves(rows, run.folder / "pictures" / "curves.png", keys)
        run.close()
    return model


def _hold(run: Run, fabric: Fabric, stack: ExitStack, progress: Progress) -> None:
    """Hold the run until the stack ends. Several processes are one run, and all of them must learn of a refusal."""
    refusal = ""
    if run.writes:
        try:
            damage = stack.enter_context(run.hold())
            for line in filter(None, (damage, moved(run.provenance, run.made))):
                progress.say(line)
        except InputError as error:
            refusal = str(error)
    if refusal := fabric.broadcast(refusal):
        raise InputError(refusal)


def _model(run: Run, fabric: Fabric, start: NPDraw | None, images: Subset, progress: Progress) -> NPDraw:
    """The model with the run's bank, which is built if need be, and its first weights. The run then begins."""
    config = run.config
    if run.has_bank:
        bank = run.bank()
        progress.say(f"continuing the run in {run.folder}")
    elif start is not None:
        bank = start.bank
        progress.say(f"starting from {config.init}, with its bank of {config.bank.parts} parts")
    else:
        progress.say(f"building a bank of {config.bank.parts} parts from {config.bank.patches:,} patches")
        bank = build_bank(config, images)
    fabric.barrier()
    run.start(bank)
    torch.manual_seed(config.seed)
    model = NPDraw(config, bank).to(fabric.device)
    if fabric.device.type == "cuda":  # the layout that convolutions use there, so no step converts it
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if start is not None:
        model.load_state_dict(model.state_dict() | _taken(start, model))
        if prior_differs(config, start.config):
            progress.say(f"the prior has other settings than that of {config.init}, so a new one is trained")
    return model


def _taken(start: NPDraw, model: NPDraw) -> dict[str, Tensor]:
    """The weights that a model takes from another one. A prior of other sizes is new; `model` has the bank. A flow may
    lack a guide, or the channel of maps in its first layer. That channel starts at 0, so the flow starts unchanged. A
    distilled flow takes no guide."""
    wanted = model.state_dict()
    found = {
        name: x for name, x in start.state_dict().items() if not name.startswith("decoder.guide") or name in wanted
    }
    if prior_differs(model.config, start.config):
        found = {name: x for name, x in found.items() if not name.startswith("prior.")}
    for name, x in found.items():
        if name.startswith("decoder.") and x.ndim == 4 and wanted[name].shape[1] == x.shape[1] + 1:
            found[name] = torch.cat([x, torch.zeros_like(x[:, :1])], dim=1)
    return found


def prior_differs(config: Config, start: Config) -> bool:
    """Whether the prior of a config does not fit the weights of the config to start from."""
    own, wanted = fixed(start), fixed(config)
    return any(own[name] != value for name, value in wanted.items() if name.startswith("prior."))


def settle(config: Config, data: ImageSet) -> Config:
    """The config, completed with facts about the images and the digest of the weights to start from. Images that do not
    fit the config are refused, and so are settings that do not fit the weights."""
    if config.decoder.distilled and not config.init:
        raise InputError("a distilled flow learns from another one; give --init, a model with a flow")
    start = _check_start(config) if config.init else ""
    found, wanted = ((x.channels, x.height, x.width) for x in (data, config.data))
    if found != wanted and config.init:
        raise InputError(
            f"{data.name} holds images of {shape_text(*found)}, but {config.init} is a model of {shape_text(*wanted)}; "
            "give such images, or a folder of pictures without --size and --colour, which is read in this format"
        )
    if found != wanted:
        raise InputError(
            f"{data.name} holds images of {shape_text(*found)}, but the config is for {shape_text(*wanted)}; give "
            f"other images, or --data.channels {found[0]} --data.height {found[1]} --data.width {found[2]}; for "
            f"pictures of your own, --size {config.data.width}x{config.data.height} resizes them"
        )
    chosen = select(data, config.split, config.data.validation)
    if config.model_stage.score_every and len(chosen.validation) < FEWEST:
        raise InputError(
            f"{plural(len(chosen.validation), 'validation image')} are too few to score samples against; use more "
            f"images, at least {FEWEST} of them for validation, or --model-stage.score-every 0"
        )
    stage, guided = config.model_stage, bool(config.init) and store.model_config(config.init).decoder.guide > 0
    if config.decoder.guide and not (stage.guide_epochs or guided):
        raise InputError(
            "the guide would learn nothing; give --model-stage.guide-epochs (fewer than the flow's epochs), or "
            "--decoder.guide 0 --decoder.guidance 0"
        )
    later = config.init and not guided  # the guide is added to a flow that was trained before
    if stage.guide_epochs >= stage.epochs > 0 and not later:
        raise InputError(
            f"a guide must learn for a shorter time than its flow, which has {plural(stage.epochs, 'epoch')}; lower "
            "--model-stage.guide-epochs"
        )
    digest = images_digest(data, chosen)
    return changed(config, {"data.inverted": data.inverted, "data.digest": digest, "init_digest": start})


def _check_start(config: Config) -> str:
    """The hash of the weights that a run starts from. A config that does not fit them is refused."""
    if config.init_digest and not store.is_model(config.init):  # for example, a run continued from another folder
        raise InputError(
            f"this run starts from {config.init}, but there is no model at {Path(config.init).absolute()}; give its "
            "present path with --init"
        )
    start = store.model_config(config.init)
    own = fixed(start)
    if start.decoder.distilled and config.decoder.distilled:
        teacher = f"{config.init}-teacher"
        named = f", {teacher}" if teacher in pretrained.listed() else ""
        raise InputError(f"{config.init} is distilled and cannot be trained further; give --init its teacher{named}")
    if prior_differs(config, start) and not config.prior_stage.epochs:
        raise InputError(
            f"the prior has other settings than that of {config.init}, so a new one has to be trained; give "
            "--prior-stage.epochs, or omit the settings of the prior"
        )
    for name, value in fixed(config).items():
        # a prior may be new, a guide or maps may be added to a flow without them, and a flow may be distilled
        late = ("decoder.distilled",) if config.decoder.distilled else ("decoder.guide", "decoder.maps")
        added = name.startswith("prior.") or (name in late and not own[name])
        added |= name == "decoder.guide" and config.decoder.distilled
        if value != own[name] and not added:
            option = name.replace("_", "-")
            raise InputError(
                f"{option} {value} does not fit the weights of {config.init}, which are for {own[name]}; omit "
                f"--{option}, or --init"
            )
    return store.weights_hash(config.init)
