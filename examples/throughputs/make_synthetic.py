#!/usr/bin/env python3
"""Prints synthetic.json: throughputs of nine workloads on three types of GPU.

Nothing in it is measured. A step is time of the host plus arithmetic at a part of the GPU's
published peak; gangs add the exchange of gradients; two jobs on one GPU share its arithmetic.
The README beside this file has the figures. The same input gives the same bytes.
"""

import json

GIB = 2**30
SCALE_FACTORS = (1, 2, 4, 8)

# Peak FP32 TFLOP/s, the part of a workload's efficiency that libraries reach there, memory, and
# bytes/s between GPUs of one server.
GPUS = {
    "k80": {"peak": 4.1e12, "reached": 0.6, "memory": 12 * GIB, "link": 8e9},
    "p100": {"peak": 9.3e12, "reached": 0.9, "memory": 16 * GIB, "link": 10e9},
    "v100": {"peak": 15.7e12, "reached": 1.0, "memory": 16 * GIB, "link": 25e9},
}
NETWORK = 1.2e9  # bytes/s between servers: 10 Gbit/s
OVERLAPPED = 0.5  # part of the arithmetic that the exchange of gradients runs beside
SHARING_COST = 0.05  # of two jobs on one GPU

# Arithmetic of a sample forward and back, efficiency, seconds of the host for each step,
# parameters, memory without samples and for each.
WORKLOADS = {
    "ResNet-18": {"flop": 1.7e9, "efficiency": 0.35, "host_s": 0.012, "parameters": 11.2e6,
                  "memory": 0.9 * GIB, "sample_memory": 0.02 * GIB, "gangs": True,
                  "batch_sizes": (16, 32, 64, 128, 256)},
    "ResNet-50": {"flop": 24.6e9, "efficiency": 0.45, "host_s": 0.03, "parameters": 25.6e6,
                  "memory": 1.2 * GIB, "sample_memory": 0.085 * GIB, "gangs": True,
                  "batch_sizes": (16, 32, 64, 128)},
    "Transformer": {"flop": 8e9, "efficiency": 0.3, "host_s": 0.03, "parameters": 63e6,
                    "memory": 1.5 * GIB, "sample_memory": 0.03 * GIB, "gangs": True,
                    "batch_sizes": (16, 32, 64, 128, 256)},
    "LM": {"flop": 1.4e9, "efficiency": 0.12, "host_s": 0.008, "parameters": 13.6e6,
           "memory": 0.8 * GIB, "sample_memory": 0.04 * GIB, "gangs": True,
           "batch_sizes": (5, 10, 20, 40, 80)},
    "GPT": {"flop": 190e9, "efficiency": 0.5, "host_s": 0.02, "parameters": 124e6,
            "memory": 2.5 * GIB, "sample_memory": 0.6 * GIB, "gangs": True,
            "batch_sizes": (4, 8, 16)},
    "Recommendation": {"flop": 0.15e9, "efficiency": 0.3, "host_s": 0.035, "parameters": 24e6,
                       "memory": 1 * GIB, "sample_memory": 0.0006 * GIB, "gangs": False,
                       "batch_sizes": (512, 1024, 2048, 4096, 8192)},
    "A3C": {"flop": 0.5e9, "efficiency": 0.1, "host_s": 0.25, "parameters": 1e6,
            "memory": 1.5 * GIB, "sample_memory": 0, "gangs": False, "batch_sizes": (1,)},
    "CycleGAN": {"flop": 1600e9, "efficiency": 0.5, "host_s": 0.02, "parameters": 28e6,
                 "memory": 5 * GIB, "sample_memory": 0, "gangs": False, "batch_sizes": (1,)},
    "VGG-16": {"flop": 93e9, "efficiency": 0.55, "host_s": 0.03, "parameters": 138e6,
               "memory": 2.6 * GIB, "sample_memory": 0.12 * GIB, "gangs": True,
               "batch_sizes": (32, 64)},
}


class Job:
    """One job type at one scale factor."""

    def __init__(self, model, batch_size, scale_factor):
        self.workload = WORKLOADS[model]
        self.batch_size = batch_size
        self.scale_factor = scale_factor
        named = len(self.workload["batch_sizes"]) > 1
        self.type = f"{model} (batch size {batch_size})" if named else model
        self.name = f"('{self.type}', {scale_factor})"

    def arithmetic_s(self, gpu):
        flop = self.workload["flop"] * self.batch_size
        return flop / (gpu["peak"] * gpu["reached"] * self.workload["efficiency"])

    def exchange_s(self, gpu, consolidated):
        n = self.scale_factor
        sent = 4 * self.workload["parameters"] * 2 * (n - 1) / n
        took = sent / (gpu["link"] if consolidated else NETWORK)
        return max(0, took - OVERLAPPED * self.arithmetic_s(gpu))

    def step_s(self, gpu, consolidated):
        exchange_s = self.exchange_s(gpu, consolidated) if self.scale_factor > 1 else 0
        return self.workload["host_s"] + self.arithmetic_s(gpu) + exchange_s

    def memory(self):
        return self.workload["memory"] + self.workload["sample_memory"] * self.batch_size

    def fits(self, gpu, beside=None):
        return self.memory() + (beside.memory() if beside else 0) <= gpu["memory"]

    def steps_per_s(self, gpu, consolidated=True):
        """Of all workers together, each with a batch of its own."""
        return self.scale_factor / self.step_s(gpu, consolidated) if self.fits(gpu) else 0

    def busy(self, gpu):
        """The part of a step in which the GPU computes."""
        return self.arithmetic_s(gpu) / self.step_s(gpu, True)


def together(job, other, gpu):
    """Steps/s of both on one GPU: whole while both find it free, else in proportion."""
    if not job.fits(gpu, other):
        return [0, 0]
    share = (1 - SHARING_COST) / max(1, job.busy(gpu) + other.busy(gpu))
    return [share * job.steps_per_s(gpu), share * other.steps_per_s(gpu)]


def jobs():
    for scale_factor in SCALE_FACTORS:
        for model, workload in WORKLOADS.items():
            if scale_factor > 1 and not workload["gangs"]:
                continue
            for batch_size in workload["batch_sizes"]:
                yield Job(model, batch_size, scale_factor)


def rounded(value):
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.4g}")


def table():
    everything = list(jobs())
    alone = [job for job in everything if job.scale_factor == 1]
    result = {}
    for name, gpu in GPUS.items():
        rows = result[name] = {}
        for job in everything:
            row = rows[job.name] = {"null": rounded(job.steps_per_s(gpu))}
            if job.scale_factor == 1:
                row.update({other.name: rounded(together(job, other, gpu)) for other in alone})
        result[f"{name}_unconsolidated"] = {
            job.name: {"null": rounded(job.steps_per_s(gpu, consolidated=False))}
            for job in everything}
    return result


def main():
    types = []
    for name, rows in table().items():
        lines = [f'  {json.dumps(row)}: {json.dumps(figures)}' for row, figures in rows.items()]
        types.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
    print("{" + ",\n".join(types) + "}")


if __name__ == "__main__":
    main()
