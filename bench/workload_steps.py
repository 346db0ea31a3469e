"""The steps of workload_steps.cc in Python: the same models, batches and optimizers.

  workload_steps.py NAME THREADS

Prints the number of parameters; then, for each number on stdin, trains so many steps and prints
the seconds that they took, on the clock and of processor time.
"""

import sys
import time

import torch
from pause_restart import LanguageModel, ResNet18
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    def __init__(self, channels_in, width, stride):
        super().__init__()
        channels_out = 4 * width
        self.first = nn.Conv2d(channels_in, width, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.third = nn.Conv2d(width, channels_out, 1, bias=False)
        self.third_norm = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, features):
        residual = functional.relu(self.first_norm(self.first(features)))
        residual = functional.relu(self.second_norm(self.second(residual)))
        residual = self.third_norm(self.third(residual))
        return functional.relu(residual + self.shortcut(features))


class ResNet50(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.stem_norm = nn.BatchNorm2d(64)
        blocks, channels = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(Bottleneck(channels, 64 << stage, stride))
                channels = 4 * (64 << stage)
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images):
        features = functional.relu(self.stem_norm(self.stem(images)))
        features = functional.max_pool2d(features, 3, 2, 1)
        return self.classifier(self.blocks(features).mean((2, 3)))


class GeneratorBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels),
            nn.ReLU(),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels),
        )

    def forward(self, features):
        return features + self.layers(features)


def generator(blocks=6, width=64):
    def normed(layer, channels):
        return [layer, nn.InstanceNorm2d(channels), nn.ReLU()]

    return nn.Sequential(
        nn.ReflectionPad2d(3),
        *normed(nn.Conv2d(3, width, 7), width),
        *normed(nn.Conv2d(width, 2 * width, 3, 2, 1), 2 * width),
        *normed(nn.Conv2d(2 * width, 4 * width, 3, 2, 1), 4 * width),
        *[GeneratorBlock(4 * width) for _ in range(blocks)],
        *normed(nn.ConvTranspose2d(4 * width, 2 * width, 3, 2, 1, 1), 2 * width),
        *normed(nn.ConvTranspose2d(2 * width, width, 3, 2, 1, 1), width),
        nn.ReflectionPad2d(3),
        nn.Conv2d(width, 3, 7),
        nn.Tanh(),
    )


def discriminator(width=64):
    layers = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for factor in (1, 2, 4):
        layers += [
            nn.Conv2d(factor * width, 2 * factor * width, 4, 2 if factor < 4 else 1, 1),
            nn.InstanceNorm2d(2 * factor * width),
            nn.LeakyReLU(0.2),
        ]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 1))


def classification(model, batch_size, side, classes):
    images = torch.rand(batch_size, 3, side, side)
    labels = torch.randint(classes, (batch_size,))
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def step():
        sgd.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        sgd.step()

    return model.parameters(), step


def language_model(words=10_000):
    model = LanguageModel(words)
    tokens, targets = torch.randint(words, (2, 35)), torch.randint(words, (2, 35))
    adam = torch.optim.Adam(model.parameters(), lr=0.003)

    def step():
        adam.zero_grad()
        functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()

    return model.parameters(), step


def cyclegan():
    to_b, to_a, is_a, is_b = generator(), generator(), discriminator(), discriminator()
    of_generators = [*to_a.parameters(), *to_b.parameters()]
    of_discriminators = [*is_a.parameters(), *is_b.parameters()]
    first = torch.optim.Adam(of_generators, lr=2e-4, betas=(0.5, 0.999))
    second = torch.optim.Adam(of_discriminators, lr=2e-4, betas=(0.5, 0.999))
    real_a, real_b = torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)
    distance = functional.l1_loss

    def verdict(found, wanted):
        return (found - wanted).square().mean()

    def step():
        first.zero_grad()
        fake_b, fake_a = to_b(real_a), to_a(real_b)
        judged = verdict(is_b(fake_b), 1) + verdict(is_a(fake_a), 1)
        cycle = distance(to_a(fake_b), real_a) + distance(to_b(fake_a), real_b)
        identity = distance(to_b(real_b), real_b) + distance(to_a(real_a), real_a)
        (judged + 10 * cycle + 5 * identity).backward()
        first.step()
        second.zero_grad()
        fake_a, fake_b = fake_a.detach(), fake_b.detach()
        judged = verdict(is_a(real_a), 1) + verdict(is_a(fake_a), 0)
        judged = judged + verdict(is_b(real_b), 1) + verdict(is_b(fake_b), 0)
        (0.5 * judged).backward()
        second.step()

    return of_generators + of_discriminators, step


WORKLOADS = {
    "resnet18": lambda: classification(ResNet18(), 2, 32, 10),
    "resnet50": lambda: classification(ResNet50(), 2, 64, 1000),
    "lstm": language_model,
    "cyclegan": cyclegan,
}


def main():
    torch.set_num_threads(int(sys.argv[2]))
    torch.manual_seed(1)
    parameters, step = WORKLOADS[sys.argv[1]]()
    print(sum(parameter.numel() for parameter in parameters), flush=True)
    for line in sys.stdin:
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            step()
        print(time.perf_counter() - begin, time.process_time() - begin_cpu, flush=True)


if __name__ == "__main__":
    main()
