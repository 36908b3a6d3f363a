"""Writes tests/golden/torch_file.pt: containers and tensors of every kind that checkpoints hold. Needs PyTorch."""
import collections
import pathlib

import torch

ramp = torch.arange(24, dtype=torch.float32)
state = {
    "module": collections.OrderedDict(weight=ramp.view(4, 6), half=ramp[:6].half(), bf16=ramp[:6].bfloat16()),
    "view": ramp[5:9],  # shares the storage of `weight`, from an offset
    "parameter": torch.nn.Parameter(torch.tensor([1.5, -2.5])),
    "shapes": [torch.Size([4, 6]), (1, 2)],
    "ids": torch.tensor([1, 2, 3]),
    "numbers": {"step": 7, "lr": 1e-3, "big": 1 << 40, "negative": -5, "none": None, "yes": True},
    3: [torch.zeros(0), {"deep": torch.tensor(4.0)}],
    "dtype": torch.float32,
}
torch.save(state, pathlib.Path(__file__).parent.parent / "tests/golden/torch_file.pt")
