"""Distillation: a flow learns to follow the path of another flow, its teacher, in few steps.

The teacher goes from noise to images, with its guide, and its points at the times of `leaps(LEAPS)` are kept. The
student is shown one of them and told a later time. It learns the mean velocity between the two (Boffi et al. 2024,
"Flow map matching"; the pairs of points are those of progressive distillation, Salimans and Ho 2022). So the student
makes the teacher's own picture of each noise, only faster, and no picture of the training set is needed.

Choices:
- Drawings, noise on canvases, maps and unfinished drawings are those that the teacher learned from.
- Teachers are slow. So the paths of `POOL` batches are made at once, and each is used `USES` times, each time between
  other points, of which a path has 15 pairs. The next pool replaces them. On a GPU the teacher is compiled.
- A pool is a function of the seed and its number, as all randomness of training is, so a killed run makes it again.
"""

import torch
from torch import Tensor

from npdraw.bounds import LEAPS
from npdraw.cuda_graphs import replay
from npdraw.flow import Flow, leaps
from npdraw.flow_pictures import lesson
from npdraw.model import NPDraw
from npdraw.training.augment import Images
from npdraw.training.loop import seed_step

POOL, USES = 16, 16
LENGTHS = ((1, 0.15), (2, 0.45), (4, 0.25), (8, 0.15))  # leaps between two points, and how often


class Paths:
    """Paths of a teacher for the steps of a student's training."""

    def __init__(self, teacher: NPDraw, training: Images, seed: int, rank: int):
        assert isinstance(teacher.decoder, Flow)
        self.teacher, self.flow, self.training = teacher.eval().requires_grad_(False), teacher.decoder, training
        device = teacher.device
        if device.type == "cuda":
            self.flow.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            for net in (self.flow, self.flow.guide):
                if net is not None:
                    net.compile()
        # these are sent there once: a step waits for every copy
        self.lengths, self.shares = (torch.tensor(x, device=device) for x in zip(*LENGTHS, strict=True))
        self.times = torch.tensor(leaps(LEAPS), device=device)
        self.seed, self.rank, self.number = seed, rank, -1
        self.pool: tuple[Tensor, Tensor, Tensor]

    def lesson(self, step: int, count: int) -> tuple[Tensor, ...]:
        """What `StudentObjective` takes at a step: `count` points of paths, their times, the later times, and the mean
        velocities between the two; conditions and strengths. Torch's own generator chooses them."""
        device, number = self.teacher.device, step // (POOL * USES)
        if number != self.number:
            vars(self).pop("pool", None)  # its memory is needed for the next one
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                seed_step(self.seed, "paths", number, self.rank)
                self.number, self.pool = number, self._made(count)
        states, conditions, strengths = self.pool  # (LEAPS+1,N,C,H,W) in half precision, (N,...), (N,)
        which = torch.randint(len(strengths), (count,), device=device)
        length = self.lengths[torch.multinomial(self.shares, count, replacement=True)]
        first = length * (torch.rand(count, device=device) * (LEAPS // length)).long()
        t, until = self.times[torch.stack([first, first + length])]
        x, y = (states[i, which].float() for i in (first, first + length))
        return x, t, until, (y - x) / (until - t)[:, None, None, None], conditions[which], strengths[which]

    @torch.no_grad()
    def _made(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """A new pool, made `count` paths at a time."""
        c, device = self.teacher.config, self.teacher.device

        def work(noise: Tensor, condition: Tensor, strength: Tensor) -> tuple[Tensor]:
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                return (self.flow.path(noise, condition, c.decoder.evaluations, strength, c.decoder.guidance),)

        states, conditions, strengths = list[Tensor](), list[Tensor](), list[Tensor]()
        for _ in range(POOL):
            index = self.training.any_side(torch.randint(len(self.training.pixels), (count,), device=device))
            condition, strength = lesson(self.teacher, self.training.parses[index])
            noise = torch.randn(count, c.data.channels, *self.flow.size, device=device)
            (path,) = replay(self.flow, "paths", work, noise, condition, strength)
            states.append(path.half())
            conditions.append(condition)
            strengths.append(strength)
        return torch.cat(states, dim=1), torch.cat(conditions), torch.cat(strengths)
