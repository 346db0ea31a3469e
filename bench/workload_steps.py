"""The steps of workload_steps.cc in Python: the same models, batches and optimizers.

  workload_steps.py NAME THREADS DEVICE

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


class Attention(nn.Module):
    def __init__(self, width, heads, dropout=0.1):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.input, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def attend(self, query, key, value, mask=None, causal=False):
        batch, length, width = query.shape
        query, key, value = (
            part.view(batch, -1, self.heads, width // self.heads).transpose(1, 2)
            for part in (query, key, value)
        )
        seen = functional.scaled_dot_product_attention(
            query, key, value, mask, self.dropout, causal
        )
        return self.output(seen.transpose(1, 2).flatten(2))

    def forward(self, tokens, mask=None, causal=False):
        return self.attend(*self.input(tokens).chunk(3, -1), mask, causal)

    def cross(self, tokens, memory, mask):
        width = tokens.shape[-1]
        weight, bias = self.input.weight, self.input.bias
        query = functional.linear(tokens, weight[:width], bias[:width])
        key, value = functional.linear(memory, weight[width:], bias[width:]).chunk(2, -1)
        return self.attend(query, key, value, mask)


class TransformerLayer(nn.Module):
    def __init__(self, width, cross):
        super().__init__()
        self.self_attention, self.self_norm = Attention(width, 8), nn.LayerNorm(width)
        if cross:
            self.cross_attention, self.cross_norm = Attention(width, 8), nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)

    def forward(self, tokens, memory, mask):
        encodes = memory is None
        seen = self.self_attention(tokens, mask if encodes else None, causal=not encodes)
        tokens = self.self_norm(tokens + self.dropout(seen))
        if not encodes:
            seen = self.cross_attention.cross(tokens, memory, mask)
            tokens = self.cross_norm(tokens + self.dropout(seen))
        wide = self.dropout(functional.relu(self.widen(tokens)))
        return self.norm(tokens + self.dropout(self.narrow(wide)))


class Transformer(nn.Module):
    def __init__(self, words, width=512, layers=6):
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(words, width), nn.Dropout(0.1)
        self.register_buffer("positions", torch.zeros(128, width))
        self.encoder = nn.ModuleList(TransformerLayer(width, False) for _ in range(layers))
        self.decoder = nn.ModuleList(TransformerLayer(width, True) for _ in range(layers))

    def embed(self, ids):
        scale = self.embedding.weight.shape[1] ** 0.5
        return self.dropout(self.embedding(ids) * scale + self.positions[: ids.shape[1]])

    def forward(self, source, target):
        mask = source.ne(0).unsqueeze(1).unsqueeze(1)
        memory, tokens = self.embed(source), self.embed(target)
        for layer in self.encoder:
            memory = layer(memory, None, mask)
        for layer in self.decoder:
            tokens = layer(tokens, memory, mask)
        return functional.linear(tokens, self.embedding.weight)


class GptLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens):
        seen = self.attention(self.attention_norm(tokens), causal=True)
        tokens = tokens + self.dropout(seen)
        wide = functional.gelu(self.widen(self.norm(tokens)), approximate="tanh")
        return tokens + self.dropout(self.narrow(wide))


class Gpt(nn.Module):
    def __init__(self, words, length=64, width=384, heads=6, layers=6):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.dropout, self.norm = nn.Dropout(0.1), nn.LayerNorm(width)
        self.layers = nn.Sequential(*[GptLayer(width, heads) for _ in range(layers)])

    def forward(self, tokens):
        states = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        states = self.norm(self.layers(self.dropout(states)))
        return functional.linear(states, self.embedding.weight)


class Autoencoder(nn.Module):
    def __init__(self, items, hidden=200):
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.encoder, self.decoder = nn.Linear(items, hidden), nn.Linear(hidden, items)

    def forward(self, likes):
        return self.decoder(torch.tanh(self.encoder(self.dropout(functional.normalize(likes)))))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 16, 8, 4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 9 * 9, 256),
            nn.ReLU(),
        )
        self.policy, self.value = nn.Linear(256, 3), nn.Linear(256, 1)

    def forward(self, pictures):
        hidden = self.body(pictures)
        return self.policy(hidden), self.value(hidden).squeeze(1)


def one_loss(model, optimizer, loss):
    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return model.parameters(), step


def transformer(words=8_000):
    model = Transformer(words)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    source, target = torch.randint(10, words, (2, 16)), torch.randint(10, words, (2, 16))

    def loss():
        losses = functional.cross_entropy(
            model(source, target).flatten(0, 1), target.flatten(),
            reduction="none", ignore_index=0, label_smoothing=0.1,
        ).view(target.shape)  # fmt: skip
        return (losses.sum(1) / target.ne(0).sum(1)).mean()

    return one_loss(model, adam, loss)


def gpt(words=10_000):
    model = Gpt(words)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens, targets = torch.randint(words, (1, 64)), torch.randint(words, (1, 64))
    return one_loss(
        model, adam, lambda: functional.cross_entropy(model(tokens)[0], targets.flatten())
    )


def recommendation(items=20_108):
    model = Autoencoder(items)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    likes = (torch.rand(64, items) > 0.99).float()
    return one_loss(
        model, adam, lambda: -(functional.log_softmax(model(likes), 1) * likes).sum(1).mean()
    )


def actor_critic(count=20):
    model = ActorCritic()
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, amsgrad=True)
    pictures, actions = torch.rand(count, 4, 84, 84), torch.randint(3, (count,))
    advantages = torch.randn(count)

    def loss():
        logits, values = model(pictures)
        log_policy = functional.log_softmax(logits, 1)
        of_actions = log_policy.gather(1, actions.unsqueeze(1)).squeeze(1)
        entropy = -(log_policy.exp() * log_policy).sum(1)
        value_loss = (values - advantages).square().mean()
        return -(of_actions * advantages).mean() + 0.5 * value_loss - 0.01 * entropy.mean()

    return one_loss(model, adam, loss)


def classification(model, batch_size, side, classes):
    images = torch.rand(batch_size, 3, side, side)
    labels = torch.randint(classes, (batch_size,))
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    return one_loss(model, sgd, lambda: functional.cross_entropy(model(images), labels))


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
    "transformer": transformer,
    "gpt": gpt,
    "recommendation": recommendation,
    "a3c": actor_critic,
    "cyclegan": cyclegan,
}


def main():
    torch.set_num_threads(int(sys.argv[2]))
    torch.set_default_device(sys.argv[3])
    wait = torch.accelerator.synchronize if sys.argv[3] != "cpu" else lambda: None
    torch.manual_seed(1)
    parameters, step = WORKLOADS[sys.argv[1]]()
    print(sum(parameter.numel() for parameter in parameters), flush=True)
    for line in sys.stdin:
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            step()
        wait()
        print(time.perf_counter() - begin, time.process_time() - begin_cpu, flush=True)


if __name__ == "__main__":
    main()
