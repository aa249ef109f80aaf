"""Training: the two stages over Lightning Fabric, with checkpoints, logs and resuming."""

from npdraw.extras import TRAINING, need

need("training", "train", *TRAINING)  # all at once, though some are used at the end alone

from npdraw.training.trainer import train  # noqa: E402

__all__ = ["train"]
