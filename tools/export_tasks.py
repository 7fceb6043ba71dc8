#!/usr/bin/env python3
"""Writes tasks or tokens for `ptqwatch trajectory`, with a model's own tokenizer.

  export_tasks.py --model M --tasks arc_easy,sciq,lambada_openai --num-fewshot 5 --limit 200 --output tasks.jsonl
  export_tasks.py --model M --text validation.txt --output tokens.bin

The first form writes the requests of lm-eval's tasks as token ids, one example a line:
  {"task", "gold", "choices": [{"context": [ids], "continuation": [ids], "chars", "bytes"}]}
A task that scores one continuation, such as LAMBADA, has one choice. It needs lm-eval[hf] 0.4.13 or later; prompts,
few-shot examples (seed 1234) and tokens are those of `lm-eval --model hf`.

The second form writes the tokens of a UTF-8 text, without special tokens, as little-endian integers: two bytes each if
the vocabulary allows, else four (it says which). It needs transformers.
"""

import argparse
import array
import json
import random
import sys

# Each is the best for the right choice, whatever the lengths, if that one has the log-likelihood 0 and others less.
METRICS = ("acc", "acc_norm", "acc_bytes", "exact_match")


def load_tokenizer(args):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(args.model, revision=args.revision, trust_remote_code=args.trust_remote_code)


def make_recorder(tokenizer):
    """Returns an lm-eval model that keeps the tokens of its requests instead of computing anything."""
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.huggingface import HFLM

    class Recorder(HFLM):
        def __init__(self):
            TemplateLM.__init__(self)
            self.tokenizer = tokenizer
            self.backend = "causal"
            self.add_bos_token = None
            self.custom_prefix_token_id = None

        loglikelihood = TemplateLM.loglikelihood  # HFLM's own adds what belongs to reasoning models

        def _loglikelihood_tokens(self, requests, **_):
            return [(context, continuation) for _, context, continuation in requests]

    return Recorder()


def right_choice(task, doc, choices, requests):
    """Returns the choice for which the task's own scoring gives full marks."""
    right = []
    for choice in range(choices):
        # Tasks with mutual information ask for each choice once more without its context.
        scores = [(0.0 if i % choices == choice else -1.0, i % choices == choice) for i in range(requests)]
        results = task.process_results(doc, scores)
        metric = next((metric for metric in METRICS if metric in results), None)
        if metric is None:
            raise ValueError(f"its metrics are {', '.join(results)}; one of {', '.join(METRICS)} is needed")
        if results[metric] == 1:
            right.append(choice)
    if len(right) != 1:
        raise ValueError(f"{len(right)} of {choices} choices are right; exactly one must be")
    return right[0]


def item_of(name, task, doc, tokens):
    """Returns one line of the output. `tokens`: context and continuation of each of the example's requests."""
    if task.OUTPUT_TYPE == "multiple_choice":
        texts = [str(choice) for choice in task.doc_to_choice(doc)]
        gold = right_choice(task, doc, len(texts), len(tokens))
    else:
        texts = [str(task.doc_to_target(doc))]
        gold = 0
    choices = []
    for text, (context, continuation) in zip(texts, tokens):
        if not continuation or not text:
            raise ValueError(f"the choice {text!r} has {len(text)} characters and {len(continuation)} tokens")
        choices.append({"context": context, "continuation": continuation, "chars": len(text),
                        "bytes": len(text.encode())})
    return {"task": name, "gold": gold, "choices": choices}


def examples_of(task, args):
    """Returns the requests of each example of an lm-eval task, as lm_eval.simple_evaluate builds them."""
    fewshot = task.get_config("num_fewshot")
    if fewshot != 0:  # a task that says 0 means it
        task.set_config("num_fewshot", fewshot or 0 if args.num_fewshot is None else args.num_fewshot)
    task.set_fewshot_seed(1234)
    task.build_all_requests(limit=args.limit, rank=0, world_size=1)
    examples = {}
    for instance in task.instances:
        examples.setdefault(instance.doc_id, []).append(instance)
    return examples.values()


def export_tasks(args):
    import numpy
    from lm_eval.tasks import TaskManager

    if not hasattr(TaskManager, "load"):
        sys.exit("export_tasks.py: lm-eval is too old; 0.4.13 or later is needed")
    random.seed(0)  # as lm_eval.simple_evaluate does, for tasks that shuffle their choices
    numpy.random.seed(1234)
    try:
        tasks = TaskManager(include_path=args.include_path).load(args.tasks)["tasks"]
    except (KeyError, ValueError) as error:
        sys.exit(f"export_tasks.py: --tasks {','.join(args.tasks)}: {error}")
    recorder = make_recorder(load_tokenizer(args))
    with open(args.output, "w", encoding="utf-8") as output:
        for name, task in tasks.items():
            if task.OUTPUT_TYPE not in ("multiple_choice", "loglikelihood"):
                sys.exit(f"export_tasks.py: task {name} is {task.OUTPUT_TYPE}; only multiple_choice and loglikelihood "
                         "can be scored")
            count = 0
            for instances in examples_of(task, args):
                instances.sort(key=lambda instance: instance.idx)
                tokens = recorder.loglikelihood(instances, disable_tqdm=True)
                try:
                    item = item_of(name, task, instances[0].doc, tokens)
                except ValueError as error:
                    sys.exit(f"export_tasks.py: task {name}, document {instances[0].doc_id}: {error}")
                output.write(json.dumps(item) + "\n")
                count += 1
            print(f"{name}: {count} examples")


def export_text(args):
    tokenizer = load_tokenizer(args)
    with open(args.text, encoding="utf-8") as text:
        ids = tokenizer.encode(text.read(), add_special_tokens=False)
    token_bytes = 2 if len(tokenizer) <= 1 << 16 else 4
    tokens = array.array("H" if token_bytes == 2 else "I", ids)
    if sys.byteorder == "big":
        tokens.byteswap()
    with open(args.output, "wb") as output:
        tokens.tofile(output)
    print(f"{len(tokens)} tokens of {token_bytes} bytes each (--token-bytes {token_bytes})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or name on the Hugging Face Hub; only its tokenizer is read")
    parser.add_argument("--revision", help="revision of the model on the Hub")
    parser.add_argument("--trust-remote-code", action="store_true", help="run a tokenizer's own code")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--tasks", type=lambda names: names.split(","), help="lm-eval's names of tasks or groups, by commas")
    what.add_argument("--text", help="a text file")
    parser.add_argument("--include-path", help="folder of further lm-eval tasks")
    parser.add_argument("--limit", type=int, help="examples of each task; all by default")
    parser.add_argument("--num-fewshot", type=int, help="examples in each prompt; the task's own number by default")
    parser.add_argument("--output", required=True, help="file to write")
    args = parser.parse_args()
    for option, least in (("limit", 1), ("num_fewshot", 0)):
        value = getattr(args, option)
        if value is not None and value < least:
            parser.error(f"--{option.replace('_', '-')} {value}: must be at least {least}")
    if args.tasks:
        export_tasks(args)
    else:
        export_text(args)


if __name__ == "__main__":
    main()
