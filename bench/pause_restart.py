"""Saves and ends, or loads and takes a step, as a PyTorch program does that is
killed and started again: the workloads of pause_workload.cc in the language of
the original Gavel's.

  pause_restart.py save|load MODEL FILE THREADS DEVICE

Prints the moment of the boundary, or of the end of the step (milliseconds of
CLOCK_MONOTONIC), and the bytes of the state.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional

STEPS_BEFORE = 10


class ResidualBlock(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels_out)
        self.second = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, features):
        residual = functional.relu(self.first_norm(self.first(features)))
        residual = self.second_norm(self.second(residual))
        return functional.relu(residual + self.shortcut(features))


class ResNet18(nn.Module):
    def __init__(self, classes=10, width=64):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        blocks, channels = [], width
        for stage in range(4):
            for block in range(2):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(ResidualBlock(channels, width << stage, stride))
                channels = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images):
        features = functional.relu(self.stem_norm(self.stem(images)))
        return self.classifier(self.blocks(features).mean((2, 3)))


class LanguageModel(nn.Module):
    def __init__(self, words, size=200, layers=2, dropout=0.2):
        super().__init__()
        self.embedding = nn.Embedding(words, size)
        self.lstm = nn.LSTM(size, size, layers, dropout=dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.Linear(size, words)

    def forward(self, tokens):
        states, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.decoder(self.dropout(states))


class Table(nn.Module):
    def __init__(self, rows=1_000_000, columns=256):
        super().__init__()
        # Without random initialization, which a restarted process would pay for.
        self.table = nn.Embedding.from_pretrained(
            torch.zeros(rows, columns), freeze=False, sparse=True
        )
        self.score = nn.Linear(columns, 1)

    def forward(self, rows):
        return self.score(self.table(rows))


def make(name, device):
    """Model, momentum, and the loss of its one batch."""
    if name == "resnet18":
        model = ResNet18()
        images, labels = torch.rand(1, 3, 32, 32), torch.randint(10, (1,))
        return model, 0.9, lambda: functional.cross_entropy(
            model(images.to(device)), labels.to(device)
        )
    if name == "lstm":
        words = 10_000
        model = LanguageModel(words)
        tokens = torch.randint(words, (1, 35))
        return model, 0, lambda: functional.cross_entropy(
            model(tokens.to(device)).flatten(0, 1), tokens.to(device).flatten()
        )
    if name == "embedding":
        model = Table()
        rows = torch.randint(1_000_000, (64,))
        return model, 0, lambda: model(rows.to(device)).square().mean()
    raise SystemExit(f"pause_restart.py: there is no model {name!r}")


def state_bytes(model, optimizer):
    tensors = list(model.parameters()) + list(model.buffers())
    for state in optimizer.state.values():
        tensors.append(state.get("momentum_buffer"))
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def main():
    _, role, name, file, threads, device = sys.argv
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    model, momentum, loss = make(name, device)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)
    if role == "load":
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    for _ in range(1 if role == "load" else STEPS_BEFORE):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    if device != "cpu":
        torch.accelerator.synchronize()
    print(f"{time.monotonic() * 1e3:.6f} {state_bytes(model, optimizer)}", flush=True)
    if role == "save":
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file
        )


if __name__ == "__main__":
    main()
