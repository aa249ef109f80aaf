"""`Muon`: an optimizer that moves the weights of convolutions along orthogonal matrices, and all others as Adam does.

The gradient of a convolution has few large singular values. The directions of its many small ones are hardly learned.
Muon (Jordan et al., 2024) takes the momentum of a weight as a matrix and brings all its singular values near 1 by
Newton-Schulz steps. These are matrix products only, which a GPU computes fast and in bf16. Choices:
- An update is scaled to the root mean square of a usual step of Adam (Liu et al., 2025), so one rate serves both.
- Weights with the same shape as matrices are stacked, because a step of such small nets is bound by kernel launches.
- A step never waits for the device: Adam's step count is there too, as its fused kernel requires.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

MOMENTUM = 0.95
BETAS, EPS = (0.9, 0.999), 1e-8  # of Adam
ITERATIONS = 5
FIRST, THIRD, FIFTH = 3.4445, -4.7750, 2.0315  # s -> 3.4445 s - 4.7750 s^3 + 2.0315 s^5: small ones rise fastest
SCALE = 0.2  # usual root mean square of an update by Adam, in units of the rate
SMALLEST = 1e-12  # norm of a matrix; below it an update fades to 0


class Muon(torch.optim.Optimizer):
    """Muon for some weights of two or more dimensions, as matrices (first dimension, all others); Adam for the rest."""

    def __init__(self, muon_params: Iterable[nn.Parameter], adam_params: Iterable[nn.Parameter], lr: float):
        groups = [{"params": list(muon_params)}, {"params": list(adam_params)}]
        super().__init__(groups, {"lr": lr, "fused": True})  # fused: a loaded step count is moved to the device
        for p in groups[0]["params"]:
            self.state[p] = {"momentum": torch.zeros_like(p)}
        for p in groups[1]["params"]:
            averages = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
            self.state[p] = {**averages, "step": torch.zeros((), device=p.device)}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is needed
        """Move all parameters that have a gradient."""
        first, second = self.param_groups
        alike: dict[tuple[int, int], list[Any]] = {}  # (rows, columns) -> parameters
        for p in first["params"]:
            if p.grad is not None:
                alike.setdefault((p.shape[0], p.shape[1:].numel()), []).append(p)
        for size, params in alike.items():
            grads, momenta = [p.grad for p in params], [self.state[p]["momentum"] for p in params]
            torch._foreach_lerp_(momenta, grads, 1 - MOMENTUM)
            ahead = torch._foreach_lerp(grads, momenta, MOMENTUM)  # Nesterov's
            updates = orthogonal(torch.stack([x.flatten(1) for x in ahead]))  # (N,rows,columns)
            moves = [x.reshape(p.shape) for x, p in zip(updates, params, strict=True)]
            torch._foreach_add_(params, moves, alpha=-first["lr"] * SCALE * max(size) ** 0.5)
        params = [p for p in second["params"] if p.grad is not None]
        averages, squares, steps = ([self.state[p][k] for p in params] for k in ("exp_avg", "exp_avg_sq", "step"))
        adam(
            params, [p.grad for p in params], averages, squares, [], steps, fused=True, amsgrad=False, beta1=BETAS[0],
            beta2=BETAS[1], lr=second["lr"], weight_decay=0.0, eps=EPS, maximize=False,
        )  # fmt: skip


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (N,rows,columns) with singular values near 1: those above 0.002 of the norm become 0.68 to 1.21."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.mT).mT  # the shorter side is squared
    norms = torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True)  # (N,1,1); no singular value is larger
    x = matrices / norms.clamp_min(SMALLEST)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(ITERATIONS):
        square = x @ x.mT  # (N,rows,rows)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=THIRD, alpha=FIFTH), x, beta=FIRST)
    return x.to(matrices.dtype)
