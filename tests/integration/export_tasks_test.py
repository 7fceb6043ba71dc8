"""Tests tools/export_tasks.py. Its tasks are compared with lm-eval's own numbers in tests/data/tasks."""

import array
import glob
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

from setup_packages import CACHE

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, "tools", "export_tasks.py")


def load_program():
    spec = importlib.util.spec_from_file_location("export_tasks", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


export_tasks = load_program()


class FakeTask:
    """A task of lm-eval with the choices "a" and "long", of which `right` are right."""

    OUTPUT_TYPE = "multiple_choice"

    def __init__(self, right, metrics=("acc", "acc_norm")):
        self.right = right
        self.metrics = metrics

    def doc_to_choice(self, doc):
        return doc

    def doc_to_target(self, doc):
        return doc[0]

    def process_results(self, doc, results):
        sums = [score for score, _ in results[:len(doc)]]
        best = {"acc": sums, "acc_norm": [score / len(text) for score, text in zip(sums, doc)]}
        return {metric: float(best[metric].index(max(best[metric])) in self.right) for metric in self.metrics}


class Items(unittest.TestCase):
    TOKENS = [([1, 2], [3]), ([1, 2], [4, 5])]

    def item(self, task, doc=("a", "long\u00e9r"), tokens=None):
        return export_tasks.item_of("fake", task, doc, tokens or self.TOKENS)

    def test_gold_is_what_the_task_scores(self):
        for right in (0, 1):
            item = self.item(FakeTask([right]))
            self.assertEqual(item["gold"], right)
            self.assertEqual(item["choices"][1],
                             {"context": [1, 2], "continuation": [4, 5], "chars": 6, "bytes": 7})
        self.assertEqual(self.item(FakeTask([1], ["acc_norm"]))["gold"], 1)

    def test_requests_without_context_are_left_out(self):
        item = self.item(FakeTask([1]), tokens=self.TOKENS + [([0], [3]), ([0], [4, 5])])
        self.assertEqual(item["gold"], 1)
        self.assertEqual(len(item["choices"]), 2)

    def test_one_continuation_is_one_choice(self):
        task = FakeTask([])
        task.OUTPUT_TYPE = "loglikelihood"
        item = self.item(task, doc=("word",), tokens=self.TOKENS[:1])
        self.assertEqual((item["gold"], len(item["choices"]), item["choices"][0]["chars"]), (0, 1, 4))

    def test_refuses_what_cannot_be_scored(self):
        for right, count in (([0, 1], 2), ([], 0)):
            with self.assertRaisesRegex(ValueError, f"{count} of 2 choices are right"):
                self.item(FakeTask(right))
        with self.assertRaisesRegex(ValueError, "its metrics are mcc"):
            task = FakeTask([0])
            task.process_results = lambda doc, results: {"mcc": 1}
            self.item(task)
        with self.assertRaisesRegex(ValueError, "'a' has 1 characters and 0 tokens"):
            self.item(FakeTask([0]), tokens=[([1], []), ([1], [2])])


class Program(unittest.TestCase):
    def run_program(self, *args):
        python_path = os.pathsep.join(glob.glob(os.path.join(CACHE, "python-quantize")))
        return subprocess.run([sys.executable, PROGRAM, *args], env={**os.environ, "PYTHONPATH": python_path},
                              capture_output=True, text=True, check=False)

    def test_names_the_option_that_is_wrong(self):
        for args, message in ((["--limit", "0"], "--limit 0: must be at least 1"),
                              (["--num-fewshot", "-1"], "--num-fewshot -1: must be at least 0"),
                              (["--limit", "x"], "--limit: invalid int value: 'x'"),
                              (["--text", "t"], "not allowed with argument")):
            done = self.run_program("--model", "m", "--tasks", "t", "--output", "o", *args)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)

    def test_writes_the_tokens_of_a_text(self):
        if not os.path.isdir(os.path.join(CACHE, "python-quantize")):
            self.skipTest("./setup installs transformers where LibTorch has CUDA")
        with tempfile.TemporaryDirectory() as folder:
            words = {"<s>": 0, "the": 1, "cat": 2, "\u00e9t\u00e9": 300}
            words.update({f"w{i}": i for i in range(3, 300)})
            self.save_tokenizer(folder, words)
            text, output = os.path.join(folder, "text.txt"), os.path.join(folder, "tokens.bin")
            with open(text, "w", encoding="utf-8") as file:
                file.write("the cat \u00e9t\u00e9 w7\nthe")
            done = self.run_program("--model", folder, "--text", text, "--output", output)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("5 tokens of 2 bytes each", done.stdout)
            with open(output, "rb") as file:
                self.assertEqual(array.array("H", file.read()).tolist(), [1, 2, 300, 7, 1])

    def save_tokenizer(self, folder, words):
        import json

        tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                     "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
                     "model": {"type": "WordLevel", "vocab": words, "unk_token": "<s>"}}
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, file)


if __name__ == "__main__":
    unittest.main(verbosity=2)
