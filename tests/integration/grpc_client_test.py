#!/usr/bin/env python3
"""A gRPC client in another language that knows ptqwatch.v1 only by the server's reflection: grpc_client_test.py CHAR_GPT [unittest
arguments]"""

import os
import re
import sys
import unittest

from trainer import CACHE, Trainer

sys.path.insert(0, os.path.join(CACHE, "python-grpc"))
try:
    import grpc
    from google.protobuf import descriptor_pool, message_factory
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
except ImportError as error:
    sys.exit(f"{error}; ./setup installs it for the python3 on the PATH, this is {sys.executable}")

CHAR_GPT = None
TIMEOUT = 240  # seconds per call; one call lasts as long as the run


class Reflection:
    """The services in a server's reflection, as callables."""

    def __init__(self, channel):
        self.channel = channel
        self.database = ProtoReflectionDescriptorDatabase(channel)
        self.pool = descriptor_pool.DescriptorPool(self.database)

    def method(self, service, name):
        descriptor = self.pool.FindServiceByName(service).FindMethodByName(name)
        request, response = (message_factory.GetMessageClass(kind) for kind in (descriptor.input_type, descriptor.output_type))
        make = self.channel.unary_stream if descriptor.server_streaming else self.channel.unary_unary
        call = make(f"/{service}/{name}", request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString)
        return lambda **fields: call(request(**fields), timeout=TIMEOUT)

    def enum_name(self, message, field):
        return message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number[getattr(message, field)].name


class Reflected(unittest.TestCase):
    def test_follows_a_run_to_its_end(self):
        with Trainer(CHAR_GPT, "--steps", "1000000", "--wait", "on", "--http", "127.0.0.1:0",
                     "--grpc", "127.0.0.1:0", "--allow-control") as trainer:
            address = trainer.wait_for(r"^grpc (\S+:\d+)$")[1]
            with grpc.insecure_channel(address) as channel:
                trainer.metrics("\nptqwatch_step ")  # until then, there is no run
                self.follow(Reflection(channel), end=trainer.process.terminate)
            code, _, err = trainer.finish()
            self.assertEqual(code, 143, err)
            # So small a model may well degrade, and a busy machine delays snapshots; no other line is allowed.
            allowed = re.compile("3-bit GPTQ costs|snapshots that are due while it rests|due snapshots were not taken")
            self.assertEqual([line for line in err.splitlines() if not allowed.search(line)], [])

    def follow(self, server, end):
        services = server.database.get_services()
        self.assertIn("ptqwatch.v1.MonitorService", services)
        self.assertIn("grpc.health.v1.Health", services)
        # Every listed service must have a description; generic clients refuse a server otherwise.
        for service in services:
            self.assertIsNotNone(server.pool.FindServiceByName(service))
        health = server.method("grpc.health.v1.Health", "Check")()
        self.assertEqual(server.enum_name(health, "status"), "SERVING")

        monitor = {name: server.method("ptqwatch.v1.MonitorService", name)
                   for name in ("WatchReports", "WatchEvents", "ListReports", "GetStatus", "Do")}
        happened = monitor["WatchEvents"](after_event=0)
        phases = monitor["WatchEvents"](after_event=0, kinds=[2])  # EVENT_KIND_PHASE_CHANGE
        stream = monitor["WatchReports"]()
        before = None
        for _, response in zip(range(10), stream):
            report = response.report
            self.assertEqual(response.missed, 0)
            self.assertEqual({(entry.method, entry.bits) for entry in report.quantization},
                             {("rtn", 3), ("rtn", 4), ("gptq", 3), ("gptq", 4)})
            for entry in report.quantization:
                self.assertEqual(server.enum_name(entry, "status"), "PROBE_STATUS_OK")
                self.assertGreater(entry.loss_nats, 0)
                self.assertTrue(entry.layers)
            if before is not None:
                self.assertEqual(report.sequence, before.sequence + 1)
                self.assertGreater(report.step, before.step)
                self.assertEqual(report.run_id, before.run_id)
            self.assertEqual(report.step % 40, 0)
            before = report

        status = monitor["GetStatus"]()
        self.assertEqual(status.run_id, before.run_id)
        self.assertEqual(server.enum_name(status, "health"), "HEALTH_OK")
        self.assertGreaterEqual(status.step, before.step)
        self.assertGreaterEqual(status.last_sequence, before.sequence)
        self.assertEqual(status.subscribers, 3)
        page = monitor["ListReports"](limit=3, without_layers=True)
        self.assertEqual([report.sequence for report in page.reports], [1, 2, 3])
        self.assertTrue(page.more)
        self.assertFalse(page.reports[0].quantization[0].layers)

        page = monitor["ListReports"](limit=1, quantizers=[{"method": "rtn", "bits": 4}, {"method": "gptq"}])
        self.assertEqual({(entry.method, entry.bits) for entry in page.reports[0].quantization}, {("rtn", 4), ("gptq", 3), ("gptq", 4)})
        with self.assertRaises(grpc.RpcError) as refused:
            monitor["ListReports"](quantizers=[{"method": "gtpq"}])
        self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

        requested = monitor["Do"](snapshot={}).number
        triggers = set()
        with self.assertRaises(grpc.RpcError) as ended:
            for response in stream:
                if response.report.sequence > requested:
                    triggers.add(server.enum_name(response.report, "trigger"))
                    if "SNAPSHOT_TRIGGER_REQUEST" in triggers:
                        end()
        self.assertIn("SNAPSHOT_TRIGGER_REQUEST", triggers)
        self.assertEqual(ended.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(ended.exception.details(), "the monitor has stopped")
        self.check_events(server, happened, phases)

    def check_events(self, server, happened, phases):
        def read(stream):
            events = []
            with self.assertRaises(grpc.RpcError) as ended:
                for response in stream:
                    self.assertEqual(response.missed, 0)
                    events.append((response.event.number, server.enum_name(response.event, "kind"), response.event.message))
            self.assertEqual(ended.exception.details(), "the monitor has stopped")
            return events

        everything, changes = read(happened), read(phases)
        self.assertEqual([number for number, _, _ in everything], list(range(1, len(everything) + 1)))
        self.assertIn("EVENT_KIND_STOPPED", {kind for _, kind, _ in everything})
        self.assertTrue(changes)
        self.assertEqual(changes, [event for event in everything if event[1] == "EVENT_KIND_PHASE_CHANGE"])


if __name__ == "__main__":
    CHAR_GPT = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
