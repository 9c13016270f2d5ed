"""AdamW with float32 master weights, clipping, a schedule that steps, and steps that are skipped when not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ragen.config.actor_rollout_ref import OptimConfig
from ragen.errors import FileError
from ragen.files import read_tensor_header
from ragen.modeling.team import SOLO, Team, gathered


def learning_rate(config: OptimConfig, step: int, total_steps: int) -> float:
    """The learning rate of training step `step` (from 1): linear warm-up from 0, then constant or cosine.

    lr 1, warm-up 4, constant: step 1 -> 0.25, step 4 -> 1, step 9 -> 1
    """
    warmup = config.lr_warmup_steps
    if warmup < 0:
        warmup = int(config.lr_warmup_steps_ratio * total_steps)
    if step <= warmup:
        return config.lr * step / warmup
    if config.lr_scheduler_type == "constant":
        return config.lr
    progress = (step - warmup) / max(1, total_steps - warmup)
    cosine = 0.5 * (1 + math.cos(2 * math.pi * config.num_cycles * progress))
    return config.lr * max(config.min_lr_ratio, cosine * (1 - config.min_lr_ratio) + config.min_lr_ratio)


def _collect_into(master: Tensor) -> Callable[[Tensor], None]:
    """A hook that moves the gradient of a weight to its master. It knows the master only: the weight holds the hook,
    and a hook that held the weight, too, would keep both alive for ever."""

    def collect(weight: Tensor) -> None:
        assert weight.grad is not None
        if master.grad is None:
            master.grad = weight.grad.float()
        else:
            master.grad += weight.grad
        weight.grad = None

    return collect


class Optimizer:
    """Updates a model's trainable weights.

    Weights in float32 are updated in place. For bfloat16 weights a float32 copy is kept and updated, gradients are
    summed in float32 as they arrive, and the result is rounded into the weights: small steps are not lost.
    """

    def __init__(self, model: nn.Module, config: OptimConfig, *, grad_clip: float, total_steps: int) -> None:
        self.config, self.grad_clip, self.total_steps = config, grad_clip, total_steps
        self.weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.masters: dict[str, Tensor] = {}
        for name, weight in self.weights.items():
            if weight.dtype == torch.float32:
                self.masters[name] = weight
            else:
                self.masters[name] = weight.detach().float().clone()
                weight.register_post_accumulate_grad_hook(_collect_into(self.masters[name]))
        self.adam = torch.optim.AdamW(
            list(self.masters.values()),
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def learning_rate(self, training_step: int) -> float:
        return learning_rate(self.config, training_step, self.total_steps)

    @torch.no_grad()
    def step(self, training_step: int) -> float:
        """One update; returns the gradient norm before clipping. A norm that is not finite skips the update."""
        norm = gathered(nn.utils.clip_grad_norm_(self.masters.values(), self.grad_clip)).item()
        if math.isfinite(norm):
            for group in self.adam.param_groups:
                group["lr"] = self.learning_rate(training_step)
            self.adam.step()
            for name, weight in self.weights.items():
                if self.masters[name] is not weight:
                    weight.copy_(self.masters[name])  # which rounds
        self.clear()
        return norm

    def gradients(self) -> dict[int, Tensor]:
        """Number of a weight -> the float32 sum of what was backpropagated since the last step."""
        grads = enumerate(master.grad for master in self.masters.values())
        return {number: grad for number, grad in grads if grad is not None}

    def clear(self) -> None:
        """Drop the gradients."""
        self.adam.zero_grad(set_to_none=True)

    def state(self, *, with_masters: bool = False) -> dict[str, Tensor]:
        """Moments, step counts and master weights by name, for a safetensors file.

        Masters that are the weights themselves are left out, unless the weights are saved rounded (`with_masters`).
        """
        tensors: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            tensors |= {f"{name}.{key}": value for key, value in self.adam.state.get(master, {}).items()}
            if with_masters or master is not self.weights[name]:
                tensors[f"{name}.master"] = master
        return {key: tensor.detach().contiguous() for key, tensor in tensors.items()}

    def state_later(self) -> dict[str, Tensor]:
        """Tensors without memory in the shapes of `state`, as it is once every weight has been updated."""
        tensors: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            kinds = ("exp_avg", "exp_avg_sq") if master is self.weights[name] else ("exp_avg", "exp_avg_sq", "master")
            like = torch.empty_like(master, device="meta")
            tensors |= {f"{name}.{kind}": like for kind in kinds} | {f"{name}.step": torch.empty((), device="meta")}
        return tensors

    def num_missing_bytes(self) -> int:
        """What the moments will take that no update has made yet."""
        return sum(2 * master.nbytes for master in self.masters.values() if master not in self.adam.state)

    def load_file(self, path: Path, team: Team = SOLO) -> None:
        """This process's part of the state in a file that `state` was saved to; that of another model is refused."""
        read_tensor_header(path)
        tensors: dict[str, Tensor] = {}
        with safe_open(path, framework="pt") as file:
            for key in sorted(file.keys()):
                name, _, kind = key.rpartition(".")
                if name not in self.masters:
                    raise FileError(
                        f"{path} holds {key}, which this model does not train. It belongs to another model."
                    )
                tensor = file.get_tensor(key)
                tensors[key] = tensor if kind == "step" else team.own_part(tensor, self.masters[name])
        for name, master in self.masters.items():
            moments = [tensors[key] for kind in ("exp_avg", "exp_avg_sq") if (key := f"{name}.{kind}") in tensors]
            if len(moments) == 1 or any(moment.shape != master.shape for moment in moments):
                raise FileError(f"{path}: the moments of {name} are not of its shape. They belong to another model.")
        self.load_state(tensors)

    @torch.no_grad()
    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        for name, master in self.masters.items():
            if f"{name}.master" in tensors:
                master.copy_(tensors[f"{name}.master"])
            if f"{name}.step" not in tensors:
                continue
            step, *moments = (tensors[f"{name}.{key}"].clone() for key in ("step", "exp_avg", "exp_avg_sq"))
            exp_avg, exp_avg_sq = (moment.to(master.device) for moment in moments)
            self.adam.state[master] = {"step": step.to(master.device), "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
