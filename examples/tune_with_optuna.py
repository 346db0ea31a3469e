"""Optuna as the optimiser of `gavel tune`, by its lines of JSON (docs/tune.md).

program = ["python3", "tune_with_optuna.py"]
"""
import json
import sys

import optuna


def say(answer):
    print(json.dumps(answer), flush=True)


def distribution(one):
    if one["kind"] == "choice":
        return optuna.distributions.CategoricalDistribution(one["values"])
    if one["kind"] == "integer":
        return optuna.distributions.IntDistribution(int(one["min"]), int(one["max"]))
    return optuna.distributions.FloatDistribution(one["min"], one["max"], log=one["kind"] == "log_uniform")


trials = {}
for line in sys.stdin:
    (what, it), = json.loads(line).items()
    if what == "start":
        search = it
        space = {one["name"]: distribution(one) for one in it["space"]}
        study = optuna.create_study(direction="minimize" if it["goal"] == "min" else "maximize",
                                    sampler=optuna.samplers.TPESampler(seed=it["seed"]))
        for old in it["trials"]:
            study.enqueue_trial(old["values"])
            trials[old["trial"]] = study.ask(space)
            for told in old["told"]:
                if told["steps"] == it["steps"] and told["value"] is not None:
                    study.tell(trials[old["trial"]], told["value"])
    elif what == "ask":
        trials[it["trial"]] = study.ask(space)
        say({"values": trials[it["trial"]].params})
    else:
        last = it["steps"] == search["steps"] or it["value"] is None
        if last and it["value"] is None:
            study.tell(trials[it["trial"]], state=optuna.trial.TrialState.FAIL)
        elif last:
            study.tell(trials[it["trial"]], it["value"])
        say({"continue": not last})
