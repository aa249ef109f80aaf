"""Training: the two stages over Lightning Fabric, with checkpoints, logs and resuming."""

from npdraw.training.trainer import train

__all__ = ["train"]
