#!/usr/bin/env python3
"""Measures checkpoints of a tiny Llama from the outside: trajectory_test.py PTQWATCH Runs|Compare|Threads|Mistakes|Killed|Processes|Follow|Sharded|Cost"""

import array
import csv
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PTQWATCH = sys.argv[1]
LENGTH, VOCABULARY, HIDDEN, INSIDE, BLOCKS = 16, 48, 32, 64, 2
CONFIG = {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": INSIDE, "num_hidden_layers": BLOCKS,
          "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "hidden_act": "silu", "tie_word_embeddings": False}


def shapes():
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for block in range(BLOCKS):
        at = f"model.layers.{block}."
        for name in "qkvo":
            yield f"{at}self_attn.{name}_proj.weight", (HIDDEN, HIDDEN)
        yield f"{at}mlp.gate_proj.weight", (INSIDE, HIDDEN)
        yield f"{at}mlp.up_proj.weight", (INSIDE, HIDDEN)
        yield f"{at}mlp.down_proj.weight", (HIDDEN, INSIDE)
        yield f"{at}input_layernorm.weight", (HIDDEN,)
        yield f"{at}post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def weights_of(seed):
    draw = random.Random(seed)
    weights = {}
    for name, shape in shapes():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        weights[name] = array.array("f", ([1.0] * count if "norm" in name else [draw.gauss(0, 0.2) for _ in range(count)]))
    return weights


def mean_of(several):
    return {name: array.array("f", [sum(values) / len(values) for values in zip(*(weights[name] for weights in several))]) for name in several[0]}


def write_safetensors(path, weights):
    header, offset = {}, 0
    for name, shape in shapes():
        size = len(weights[name]) * 4
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(weights[name].tobytes() for name, _ in shapes()))


def write_checkpoint(folder, weights, step=None, rate=None):
    """The trainer's state comes last, as Trainer writes it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_safetensors(folder / "model.safetensors", weights)
    if step is not None:
        log = [{"step": step, "learning_rate": rate, "grad_norm": float("nan")}]
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "num_input_tokens_seen": 1000 * step, "log_history": log}))


class Trajectory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        draw = random.Random(1)
        for name, sequences in (("probe", 8), ("calibration", 24)):
            ids = [draw.randrange(VOCABULARY) for _ in range(sequences * LENGTH + 1)]
            (self.root / f"{name}.bin").write_bytes(array.array("H", ids).tobytes())

    def save(self, *steps, rate=lambda step: 1e-3):
        for step in steps:
            write_checkpoint(self.root / f"out/checkpoint-{step}", weights_of(step), step, rate(step))

    def words(self, *extra, run_dir="run", checkpoints=("out",)):
        return [PTQWATCH, "trajectory", *checkpoints, "--probe", "probe.bin", "--calibration", "calibration.bin", "--length", str(LENGTH),
                "--run-dir", run_dir, "--quantizers", "gptq3,rtn4", "--threads", "1", *extra]

    def run_program(self, words, code=0):
        done = subprocess.run(words, cwd=self.root, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
        return done

    def check_refused(self, words, *parts):
        """One line of the program names all parts."""
        with self.subTest(words=words[2:]):
            done = self.run_program(words, code=2)
            self.assertEqual(done.stdout, "")
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            for part in ("ptqwatch-trajectory: ", *parts):
                self.assertIn(part, done.stderr)

    def reports(self, run_dir="run"):
        lines = self.run_program([PTQWATCH, "history", run_dir, "--json"]).stdout.splitlines()
        reports = [json.loads(line) for line in lines]
        for report in reports:
            report.pop("cost")
        return reports


class Runs(Trajectory):
    def test_an_override_changes_the_layers_of_one_quantizer(self):
        self.save(100)
        words = self.words("--no-curvature", "--noise", "0")
        mixed = [*self.words("--no-curvature", "--noise", "0", "--override", "gptq3:*.mlp.*=gptq8", run_dir="mixed")]
        mixed[mixed.index("--quantizers") + 1] = "gptq3,rtn4,gptq8"
        self.run_program(words)
        self.run_program(mixed)
        (alone,), (together,) = self.reports(), self.reports("mixed")

        def errors(report, entry):
            return {layer["name"]: layer["output_error_ratio"] for layer in report["quantization"][entry]["layers"]}

        self.assertEqual(errors(together, 1), errors(alone, 1))
        three, eight, chosen = errors(alone, 0), errors(together, 2), errors(together, 0)
        self.assertEqual(chosen, {name: (eight if ".mlp." in name else three)[name] for name in three})
        self.assertTrue(any(".mlp." in name for name in three))
        self.assertEqual(together["quantization"][0]["bits"], 3)
        self.check_refused(self.words("--no-curvature", "--noise", "0", "--override", "gptq3:*.mlp.*=gptq8"), "quantizers was", "gptq3:*.mlp.*=gptq b8")

    def test_every_reader_knows_the_run(self):
        self.save(100, 200, 300, rate=lambda step: 1e-3 if step < 300 else 5e-4)
        done = self.run_program(self.words())
        self.assertRegex(done.stdout, r"(?m)^step +tokens +lr +loss +gptq3 +rtn4 +verdict$")
        self.assertIn("checkpoint 3 of 3: checkpoint-300 (step 300)", done.stderr)
        reports = self.reports()
        self.assertEqual([report["step"] for report in reports], [100, 200, 300])
        for sequence, report in enumerate(reports, 1):
            self.assertEqual((report["sequence"], report["attempt"], report["source"]), (sequence, 1, "trajectory"))
            self.assertEqual(report["tokens"], 1000 * report["step"])
            self.assertGreater(report["probe_loss_nats"], 3)
            self.assertEqual(report["probe_tokens"], 8 * LENGTH)
            self.assertEqual([(entry["method"], entry["bits"], entry["status"]) for entry in report["quantization"]], [("gptq", 3, "ok"), ("rtn", 4, "ok")])
            self.assertEqual(report["curvature"]["status"], "ok")
        self.assertEqual([report["lr_phase"] for report in reports], ["unknown", "stable", "decay"])
        for command in (("status", "run"), ("watch", "run", "--plain"), ("layers", "run"), ("report", "run", "-o", "run.html"), ("replay", "run")):
            self.run_program([PTQWATCH, *command])
        self.assertIn("stopped", self.run_program([PTQWATCH, "status", "run"]).stdout)
        again = self.run_program(self.words())
        self.assertNotIn("checkpoint 1", again.stderr)
        self.assertEqual(again.stdout, done.stdout)

    def test_means_are_those_of_the_averaged_weights(self):
        first, second = weights_of(1), weights_of(2)
        write_checkpoint(self.root / "a-step1", first)
        write_checkpoint(self.root / "a-step2", second)
        write_checkpoint(self.root / "mean-step2", mean_of([first, second]))
        checkpoints = ("a-step1", "a-step2", "mean-step2")
        self.run_program(self.words("--average", "2", "--soup", "a-step1,a-step2", "--no-curvature", checkpoints=checkpoints))
        reports = {(report["branch"], report["step"]): report for report in self.reports()}
        mean, soup, window = reports["mean", 2], reports["soup", 2], reports["a", 2]["averaging"][0]
        self.assertEqual((window["window"], window["snapshots"], window["first_step"]), (2, 2, 1))
        for measured in (soup["probe_loss_nats"], window["loss_nats"]):
            self.assertEqual(measured, mean["probe_loss_nats"])
        for measured in (soup["quantization"], window["quantization"]):
            self.assertEqual([entry["loss_nats"] for entry in measured], [entry["loss_nats"] for entry in mean["quantization"]])

    def test_takes_rates_from_a_manifest_and_a_schedule(self):
        for step in (10, 20):
            write_checkpoint(self.root / f"weights/{step}", weights_of(step))
        (self.root / "weights/list.csv").write_text("path,step,learning_rate\n10,10,0.5\n20,20,\n")
        self.run_program(self.words("--no-curvature", "--schedule", "constant:peak=0.25", checkpoints=("weights/list.csv",)))
        self.assertEqual([report["learning_rate"] for report in self.reports()], [0.5, 0.25])
        self.run_program(self.words("--no-curvature", run_dir="other", checkpoints=("weights/list.csv",)))
        other = self.reports("other")
        self.assertEqual(["learning_rate" in report for report in other], [True, False])
        self.assertEqual(other[1]["lr_phase"], "unknown")

    def test_tells_the_size_of_the_codes_if_asked(self):
        self.save(100)
        self.run_program(self.words("--no-curvature"))
        self.run_program(self.words("--no-curvature", "--artifact-size", run_dir="sized"))
        (plain,), (sized,) = self.reports(), self.reports("sized")
        for entry in sized["quantization"]:
            self.assertLess(0.5 * entry["bits"], entry["entropy_bits"])
            self.assertLess(entry["entropy_bits"], entry["bits"])
            self.assertGreater(entry.pop("artifact_bytes"), 0)
            del entry["entropy_bits"]
            for row in entry["layers"]:
                self.assertLess(0, row.pop("entropy_bits"))
        for report in (plain, sized):
            del report["run_id"], report["snapshot_time_unix_seconds"]
        self.assertEqual(sized, plain)

    def test_scores_tasks_and_keeps_to_them(self):
        self.save(100)
        draw = random.Random(3)
        items = [{"task": "letters", "gold": draw.randrange(2),
                  "choices": [{"context": [1, draw.randrange(VOCABULARY)], "continuation": [draw.randrange(VOCABULARY)], "chars": 1} for _ in range(2)]}
                 for _ in range(12)]
        (self.root / "tasks.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
        self.run_program(self.words("--no-curvature", "--tasks", "tasks.jsonl"))
        report = self.reports()[0]
        for holder in (report, *report["quantization"]):
            self.assertEqual({entry["task"] for entry in holder["tasks"]}, {"letters"})
        self.assertIn("probe_accuracy_ratio", report)
        self.assertIn("accuracy_degradation_ratio", report["quantization"][0])
        done = self.run_program(self.words("--no-curvature"), code=2)
        self.assertIn("tasks was '12 items", done.stderr)
        (self.root / "tasks.jsonl").write_text(json.dumps({**items[0], "gold": 2}))
        done = self.run_program(self.words("--no-curvature", "--tasks", "tasks.jsonl", run_dir="other"), code=2)
        self.assertRegex(done.stderr, "--tasks: .*tasks.jsonl.*1.*gold.*2")


class Compare(Trajectory):
    def setUp(self):
        super().setUp()
        write_checkpoint(self.root / "base", weights_of(1))
        tuned = weights_of(1)
        for name in tuned:
            if "down_proj" in name:
                tuned[name] = array.array("f", (1.5 * value for value in tuned[name]))
        write_checkpoint(self.root / "tuned", tuned)

    def words(self, *extra, models=("base", "tuned")):
        words = super().words("--compare", *extra, checkpoints=models)
        at = words.index("--run-dir")
        return words[:at] + words[at + 2:]

    def test_says_what_two_models_measured_alone_say(self):
        json_line = self.run_program(self.words("--json")).stdout
        self.assertEqual(len(json_line.splitlines()), 1)
        compared = json.loads(json_line)
        alone = []
        for name in ("base", "tuned"):
            self.run_program(Trajectory.words(self, "--no-curvature", "--noise", "0", run_dir=f"run-{name}", checkpoints=(name,)))
            alone += self.reports(f"run-{name}")
        self.assertEqual([model["path"] for model in compared["models"]], ["base", "tuned"])
        for model, report in zip(compared["models"], alone):
            self.assertNotIn("verdict", model["report"])
            for entry in (*model["report"]["quantization"], *report["quantization"]):
                self.assertEqual(len(entry.pop("layers")), 7 * BLOCKS)  # a journal rounds their numbers
            for key in ("probe_loss_nats", "probe_loss_stderr_nats", "quantization", "snapshot_digest", "step"):
                self.assertEqual(model["report"][key], report[key], key)
        first, second = alone
        self.assertEqual((compared["probe_sequences"], compared["probe_tokens"]), (8, 8 * LENGTH))
        self.assertAlmostEqual(compared["probe_loss_difference_nats"], second["probe_loss_nats"] - first["probe_loss_nats"], 12)
        for entry, a, b in zip(compared["quantization"], first["quantization"], second["quantization"], strict=True):
            self.assertEqual((entry["method"], entry["bits"], entry["format"]), (a["method"], a["bits"], "int"))
            for name, key in (("loss_difference_nats", "loss_nats"), ("delta_difference_nats", "delta_nats"), ("error_ratio_difference", "error_ratio")):
                self.assertAlmostEqual(entry[name], b[key] - a[key], 12)
            self.assertGreater(entry["error_ratio_difference_stderr"], 0)
        table = self.run_program(self.words()).stdout.splitlines()
        self.assertRegex(table[0], r"^A: base \(llama, 2 blocks of 32")
        self.assertRegex(table[1], r"^B: tuned \(llama")
        self.assertEqual(table[2], f"{8 * LENGTH} tokens in 8 sequences")
        self.assertEqual([line.split()[0] for line in table[4:]], ["quantizer", "none", "gptq3", "rtn4"])
        lines = list(csv.DictReader(self.run_program(self.words("--csv")).stdout.splitlines()))
        self.assertEqual([(line["method"], line["bits"]) for line in lines], [("gptq", "3"), ("rtn", "4")])
        for line, entry in zip(lines, compared["quantization"]):
            self.assertEqual(float(line["error_ratio_difference_stderr"]), entry["error_ratio_difference_stderr"])
            self.assertAlmostEqual(float(line["error_ratio_b"]) - float(line["error_ratio_a"]), float(line["error_ratio_difference"]), 12)
            self.assertEqual((line["path_a"], line["path_b"], line["status_a"], line["status_b"]), ("base", "tuned", "ok", "ok"))
        self.assertEqual(sorted(path.name for path in self.root.iterdir() if path.name.startswith("run")), ["run-base", "run-tuned"])

    def test_a_model_and_itself_do_not_differ(self):
        compared = json.loads(self.run_program(self.words("--json", models=("base", "base"))).stdout)
        for entry in compared["quantization"]:
            self.assertEqual((entry["error_ratio_difference"], entry["error_ratio_difference_stderr"]), (0, 0))

    def test_mistakes_name_option_and_value(self):
        self.save(100, 200)
        for words, *parts in (
                (self.words(models=("base",)), "--compare", "two models, not 1", "'base'"),
                (self.words(models=("base", "tuned", "base")), "--compare", "not 3", "'tuned'"),
                (self.words(models=("base", "gone")), "'gone'"),
                (self.words(models=("base", "out")), "--compare", "'out'", "2 checkpoints", "checkpoint-200"),
                (self.words("--schedule", "constant:peak=1"), "--compare", "--schedule 'constant:peak=1'"),
                (self.words("--run-dir", "run"), "--compare", "--run-dir 'run'"),
                (self.words("--no-curvature"), "--compare", "--no-curvature"),
                (self.words("--artifact-size"), "--compare", "--artifact-size"),
                (self.words("--average", "2"), "--compare", "--average '2'"),
                (self.words("--soup", "base,tuned"), "--compare", "--soup 'base,tuned'"),
                (self.words("--follow"), "--compare", "--follow"),
                (self.words("--config", "tuned/config.json"), "--config 'tuned/config.json'", "'base/config.json'", "--compare"),
                (self.words("--length", "65"), "'base'", "--length", "65"),
                (self.words("--json", "--csv"), "--json", "--csv"),
                (Trajectory.words(self, "--json"), "--json", "--compare")):
            self.check_refused(words, *parts)

    def test_refuses_another_vocabulary(self):
        write_random_bf16(self.root / "wide", 64, 64, 1, 64)
        done = self.run_program(self.words(models=("base", "wide")), code=2)
        self.assertRegex(done.stderr, "--compare: 'base' has a vocabulary of 48 tokens and 'wide' one of 64")

    def test_says_which_model_has_no_loss(self):
        broken = weights_of(1)
        broken["model.norm.weight"][0] = float("nan")
        write_checkpoint(self.root / "broken", broken)
        done = self.run_program(self.words(models=("base", "broken")), code=1)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, "'broken': .*model.norm.weight")


class Threads(unittest.TestCase):
    def test_threads_sleep_while_they_wait_unless_the_environment_says_otherwise(self):
        program = os.path.join(os.path.dirname(PTQWATCH), "ptqwatch-trajectory")
        without = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        for given, policy in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "active"}, "ACTIVE")):
            done = subprocess.run([program, "--help"], env=without | given | {"OMP_DISPLAY_ENV": "true"}, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            last = done.stderr[done.stderr.rindex("OMP_WAIT_POLICY"):]
            self.assertTrue(last.startswith(f"OMP_WAIT_POLICY = '{policy}'"), done.stderr)


class Mistakes(Trajectory):
    def test_name_option_and_value(self):
        self.save(100)
        (self.root / "short.bin").write_bytes(b"\0\0")
        (self.root / "large.bin").write_bytes(array.array("H", [VOCABULARY] * 40).tobytes())
        good = self.words()

        def changed(option, value):
            words = list(good)
            words[words.index(option) + 1] = value
            return words

        for words, *parts in (
                (changed("--length", "0"), "--length", "0"),
                (changed("--length", "x"), "--length", "x"),
                (changed("--length", "65"), "--length", "65", "64"),
                (changed("--quantizers", "gptq3,foo"), "--quantizers", "foo"),
                (changed("--quantizers", "gptq3,gptq3"), "--quantizers", "twice"),
                ([*good, "--override", "gptq3"], "--override", "'gptq3'", "QUANTIZER:GLOB=QUANTIZER"),
                ([*good, "--override", "gptq3:*.mlp.*=gptq9"], "--override", "bits is 9"),
                ([*good, "--override", "gptq4:*.mlp.*=gptq8"], "--override", "'gptq4'", "gptq3, rtn4"),
                (changed("--probe", "gone.bin"), "--probe", "gone.bin"),
                (changed("--probe", "short.bin"), "--probe", "short.bin", "1 tokens"),
                (changed("--calibration", "large.bin"), "--calibration", "token 0 is 48"),
                (changed("--threads", "0"), "--threads", "0"),
                ([*good, "--probe-sequences", "9"], "--probe", "9"),
                ([*good, "--token-bytes", "3"], "--token-bytes", "3"),
                ([*good, "--schedule", "wsd:peak=1"], "--schedule", "wsd:peak=1", "decay_start"),
                ([*good, "--average", "1"], "--average", "1"),
                ([*good, "--soup", "a"], "--soup", "'a'"),
                ([*good, "--soup", "a,b"], "--soup", "'a'"),
                ([*good, "--until", "5"], "--until", "--follow"),
                ([*good, "--only", "1"], "--only", "1"),
                ([*good, "--only", "0", "--follow"], "--only", "--follow"),
                ([*good, "--max-bytes", "-1"], "--max-bytes", "-1"),
                ([*good, "--tasks", "x"], "--tasks"),
                ([*good, "--bogus"], "--bogus"),
                ([*good, "gone"], "gone"),
                (good[:2] + good[3:], "CHECKPOINT")):
            self.check_refused(words, *parts)
        self.assertFalse((self.root / "run/journal.jsonl").exists())

    def test_refuses_a_directory_with_other_settings(self):
        self.save(100)
        self.run_program(self.words("--no-curvature"))
        done = self.run_program(self.words("--no-curvature", "--seed", "7"), code=2)
        self.assertIn("seed was '0' and is '7'", done.stderr)

    def test_too_little_memory_is_a_failure_that_says_how_much_is_needed(self):
        self.save(100)
        done = self.run_program(self.words("--max-bytes", "1000"), code=1)
        self.assertRegex(done.stderr, r"checkpoint-100.* needs \d+ bytes .*--max-bytes = 1000")

    def test_says_what_is_wrong_with_a_checkpoint(self):
        self.save(100, 200)
        path = self.root / "out/checkpoint-200/model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        done = self.run_program(self.words(), code=2)
        self.assertIn("checkpoint-200", done.stderr)
        self.assertFalse((self.root / "run/journal.jsonl").exists())


class Killed(Trajectory):
    def test_ends_with_the_journal_of_an_undisturbed_run(self):
        steps = list(range(100, 1300, 100))
        self.save(*steps)
        self.run_program(self.words(run_dir="undisturbed"))
        shutil.move(self.root / "out", self.root / "later")
        (self.root / "out").mkdir()
        draw = random.Random(0)
        while steps:
            for step in steps[:4]:
                shutil.move(self.root / f"later/checkpoint-{step}", self.root / "out")
            del steps[:4]
            # It waits for more, so it is there to be killed, however late that comes.
            process = subprocess.Popen(self.words("--follow"), cwd=self.root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.stderr.close)
            begun = 0
            while begun < 3:
                line = process.stderr.readline()
                self.assertTrue(line)
                begun += line.startswith("checkpoint ")
            time.sleep(draw.uniform(0, 0.3))  # somewhere in the third or fourth
            process.kill()
            self.assertEqual(process.wait(), -signal.SIGKILL)
        self.run_program(self.words())
        self.assertEqual(self.reports(), self.reports("undisturbed"))

    def test_a_signal_ends_it_cleanly(self):
        self.save(100)
        for step in range(200, 50100, 100):  # of one file, because they are many: some are left, however late the signal comes
            folder = self.root / f"out/checkpoint-{step}"
            folder.mkdir()
            for name in ("config.json", "model.safetensors"):
                (folder / name).symlink_to(self.root / "out/checkpoint-100" / name)
            (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": [{"step": step, "learning_rate": 1e-3}]}))
        process = subprocess.Popen(self.words(), cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if line.startswith("checkpoint 3 of "):
                break
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertIn("stopped", error)
        self.assertIn("verdict", out)
        self.assertIn("stopped", self.run_program([PTQWATCH, "status", "run"]).stdout)


class Processes(Trajectory):
    def test_share_the_work(self):
        self.save(100, 200, 300, 400)
        self.run_program(self.words(run_dir="alone"))
        listed = self.run_program(self.words("--list")).stdout.splitlines()
        self.assertEqual(listed[0].split(), ["index", "branch", "step", "path", "seconds", "bytes", "state"])
        self.assertEqual([line.split()[0] for line in listed[1:]], ["0", "1", "2", "3"])
        processes = [subprocess.Popen(self.words("--only", unit), cwd=self.root) for unit in ("3", "1")]
        for process in processes:
            self.assertEqual(process.wait(timeout=300), 0)
        self.run_program(self.words("--only", "0"))
        self.assertEqual([line.split()[-1] for line in self.run_program(self.words("--list")).stdout.splitlines()[1:]], ["part", "part", "-", "part"])
        done = self.run_program(self.words())
        self.assertIn("checkpoint-300", done.stderr)
        self.assertNotIn("checkpoint-200", done.stderr)
        self.assertEqual(self.reports(), self.reports("alone"))
        self.assertEqual(list((self.root / "run").glob("part-*")), [])


class Follow(Trajectory):
    def test_measures_checkpoints_as_they_are_written(self):
        process = subprocess.Popen(self.words("--follow", "--until", "200", "--no-curvature"), cwd=self.root, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.assertIn("waiting", process.stderr.readline())
        self.save(100)
        self.assertRegex(process.stderr.readline(), r"checkpoint 1 of 1: checkpoint-100")
        staging = self.root / "staging"
        write_checkpoint(staging, weights_of(200), 200, 1e-3)
        shutil.move(staging, self.root / "out/checkpoint-200")
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0)
        self.assertEqual([report["step"] for report in self.reports()], [100, 200])

    def test_ends_well_at_the_first_interrupt(self):
        (self.root / "out").mkdir()
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(self.words("--follow"), cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.assertIn("waiting", process.stderr.readline())
            process.send_signal(number)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)


def write_shards(folder, weights, ranks):
    """As torch.distributed.checkpoint's HuggingFaceStorageWriter writes a model of FSDP: matrices by rows, every third one by columns."""
    folder.mkdir(parents=True)
    for rank in range(ranks):
        header, info, data = {}, {}, b""
        for number, (name, shape) in enumerate(shapes()):
            dim = 1 if len(shape) > 1 and number % 3 == 0 else 0
            each = -(-shape[dim] // ranks)
            begin, end = min(rank * each, shape[dim]), min((rank + 1) * each, shape[dim])
            width = shape[1] if len(shape) > 1 else 1
            values = weights[name]
            part = values[begin * width:end * width] if dim == 0 else \
                array.array("f", (value for row in range(shape[0]) for value in values[row * width + begin:row * width + end]))
            header[name] = {"dtype": "F32", "shape": [end - begin if i == dim else size for i, size in enumerate(shape)],
                            "data_offsets": [len(data), len(data) + 4 * len(part)]}
            info[name] = {"saved_offsets": [begin if i == dim else 0 for i in range(len(shape))]}
            data += part.tobytes()
        header["__metadata__"] = {"DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(info)}
        text = json.dumps(header).encode()
        path = folder / f"shard-{rank + 1:05d}-model-00001-of-00001.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Sharded(Trajectory):
    def setUp(self):
        super().setUp()
        (self.root / "config.json").write_text(json.dumps(CONFIG))

    def test_measures_what_the_whole_gives(self):
        write_checkpoint(self.root / "whole/step-100", weights_of(100))
        write_shards(self.root / "shards/step-100", weights_of(100), 5)
        self.run_program(self.words(checkpoints=["whole"]))
        self.run_program(self.words("--config", "config.json", run_dir="sharded", checkpoints=["shards"]))
        whole, sharded = self.reports()[0], self.reports("sharded")[0]
        for report in (whole, sharded):
            report.pop("run_id"), report.pop("snapshot_time_unix_seconds")
        self.assertEqual(whole["curvature"]["status"], "ok")
        self.assertEqual(whole, sharded)

    def test_says_what_is_missing(self):
        write_shards(self.root / "shards/step-100", weights_of(100), 5)
        done = self.run_program(self.words(checkpoints=["shards"]), code=2)
        self.assertRegex(done.stderr, "there is no '.*config.json'; .* --config names")
        done = self.run_program(self.words("--config", "gone.json", checkpoints=["shards"]), code=2)
        self.assertRegex(done.stderr, "--config.*gone.json")
        for missing, text in ((3, "a file is missing"), (5, "a shard of a rank may be missing")):
            folder = self.root / f"without-{missing}/step-100"
            write_shards(folder, weights_of(100), 5)
            (folder / f"shard-{missing:05d}-model-00001-of-00001.safetensors").unlink()
            done = self.run_program(self.words("--config", "config.json", checkpoints=[f"without-{missing}"]), code=2)
            self.assertIn(text, done.stderr)

    def test_waits_for_the_last_shard(self):
        folder = self.root / "out/step-100"
        write_shards(folder, weights_of(100), 5)
        last = folder / "shard-00005-model-00001-of-00001.safetensors"
        last.rename(self.root / "last")
        process = subprocess.Popen(self.words("--config", "config.json", "--follow", "--until", "100", "--no-curvature"), cwd=self.root,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        said = ""
        while "a shard of a rank may be missing" not in said:
            said = process.stderr.readline()
            self.assertTrue(said, "the program ended")
        (self.root / "last").rename(last)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0)
        self.assertEqual([report["step"] for report in self.reports()], [100])


def write_random_bf16(folder, hidden, inside, blocks, vocabulary):
    """A random Llama in bfloat16, with weights of sizes that keep the sizes of activations."""
    folder.mkdir()
    heads = hidden // 64
    config = {**CONFIG, "hidden_size": hidden, "intermediate_size": inside, "num_hidden_layers": blocks, "vocab_size": vocabulary,
              "num_attention_heads": heads, "num_key_value_heads": heads, "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = [("model.embed_tokens.weight", (vocabulary, hidden)), ("lm_head.weight", (vocabulary, hidden)), ("model.norm.weight", (hidden,))]
    for block in range(blocks):
        at = f"model.layers.{block}."
        shapes += [(f"{at}self_attn.{name}_proj.weight", (hidden, hidden)) for name in "qkvo"]
        shapes += [(f"{at}mlp.{name}_proj.weight", (inside, hidden)) for name in ("gate", "up")] + [(f"{at}mlp.down_proj.weight", (hidden, inside))]
        shapes += [(f"{at}{name}_layernorm.weight", (hidden,)) for name in ("input", "post_attention")]
    draw = random.Random(0)
    signs = bytes(0xbc if byte % 2 else 0x3c for byte in range(256))
    header, offset, parts = {}, 0, []
    for name, shape in shapes:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if len(shape) > 1:  # between 2^-7 and 2^-5, of either sign
            part = bytearray(2 * count)
            part[0::2] = draw.randbytes(count)
            part[1::2] = draw.randbytes(count).translate(signs)
        else:
            part = b"\x80\x3f" * count  # 1
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(part)]}
        offset += len(part)
        parts.append(part)
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        for part in (struct.pack("<Q", len(text)), text, *parts):
            file.write(part)


class Cost(Trajectory):
    """Four blocks stand in for a model of 1.2 billion parameters."""

    LENGTH, SEQUENCES, VOCABULARY = 256, 4, 4096

    def measured(self, words):
        """The output and the largest resident set of a process."""
        process = subprocess.Popen(words, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, error = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, error)
        process.stdout.close()
        process.stderr.close()
        return out, 1024 * usage.ru_maxrss

    def test_the_mean_of_large_tensors_takes_more(self):
        for name in ("step1", "step2"):
            write_random_bf16(self.root / name, hidden=128, inside=128, blocks=1, vocabulary=30000)
        for name in ("probe", "calibration"):
            (self.root / f"{name}.bin").write_bytes(array.array("H", range(65)).tobytes())

        def listed(*words):
            return int(self.run_program(self.words("--length", "32", "--no-curvature", "--list", *words, checkpoints=("step1", "step2"))).stdout.split()[-2])

        alone = listed()
        self.assertGreater(listed("--soup", "step1,step2"), alone + 10 * 128 * 30000)
        self.assertGreater(listed("--average", "2"), alone + 10 * 128 * 30000)

    def test_memory_stays_below_what_was_predicted(self):
        write_random_bf16(self.root / "step1", hidden=768, inside=2048, blocks=4, vocabulary=self.VOCABULARY)
        draw = random.Random(1)
        for name in ("probe", "calibration"):
            ids = [draw.randrange(self.VOCABULARY) for _ in range(self.SEQUENCES * self.LENGTH + 1)]
            (self.root / f"{name}.bin").write_bytes(array.array("H", ids).tobytes())
        options = ("--length", str(self.LENGTH), "--quantizers", "rtn3,rtn4,gptq3,gptq4", "--no-curvature")
        words = self.words(*options, checkpoints=("step1",))
        listed, idle = self.measured([*words, "--list"])
        self.assertEqual(listed.splitlines()[1].split()[4], "-")  # seconds: none is measured
        size = int(listed.splitlines()[1].split()[5])
        _, peak = self.measured([*words, "--only", "0", "--max-bytes", str(size)])
        self.assertLessEqual(peak - idle, size)
        self.run_program([*words, "--merge"])
        entries = self.reports()[0]["quantization"]
        self.assertEqual([(entry["method"], entry["bits"], entry["status"]) for entry in entries],
                         [("rtn", 3, "ok"), ("rtn", 4, "ok"), ("gptq", 3, "ok"), ("gptq", 4, "ok")])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], sys.argv[2], *sys.argv[3:]], verbosity=2)
