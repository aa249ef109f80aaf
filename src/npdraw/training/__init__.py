"""Training: the two stages over Lightning Fabric, with checkpoints, logs and resuming."""

from npdraw.training.stages import train

__all__ = ["train"]
