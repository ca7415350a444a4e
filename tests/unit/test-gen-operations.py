#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The generator refuses a table with a mistake, and says where the mistake is."""

import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.environ.get("VMM_TEST_SOURCE_ROOT", os.getcwd())
GENERATOR = os.path.join(ROOT, "interfaces", "gen-operations.py")
TABLE = os.path.join(ROOT, "interfaces", "operations.json")


def run(text, form="check"):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return subprocess.run([sys.executable, GENERATOR, "--format", form, file.name],
                              capture_output=True, text=True, check=False)


class Generator(unittest.TestCase):
    def setUp(self):
        with open(TABLE, encoding="utf-8") as file:
            self.table = json.load(file)
        self.rows = {row["name"]: row for row in self.table["operations"]}

    def refused(self, message):
        done = run(json.dumps(self.table))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(message, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertNotIn("Traceback", done.stderr)

    def test_good(self):
        for form in ("check", "c", "openapi"):
            done = run(json.dumps(self.table), form)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout == "", form == "check")

    def test_same_output_each_time(self):
        outputs = {run(json.dumps(self.table), "c").stdout for _ in range(2)}
        self.assertEqual(len(outputs), 1)

    def test_duplicate_name(self):
        row = copy.deepcopy(self.rows["get_info"])
        row["dbus"]["method"] = "GetInfoAgain"
        self.table["operations"].append(row)
        self.refused("get_info and get_info have the same name")

    def test_duplicate_route(self):
        self.rows["get_vm_report"]["rest"]["path"] = "/vms/{id}/metrics"
        self.refused("have the same route: GET /vms/{}/metrics")

    def test_duplicate_dbus_method(self):
        self.rows["stop_vm"]["dbus"]["method"] = "Start"
        self.refused("have the same D-Bus method")

    def test_duplicate_member(self):
        done = run('{"title": 1, "title": 2}')
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("member title twice", done.stderr)

    def test_unknown_key(self):
        self.rows["get_vm"]["sumary"] = "x"
        self.refused("get_vm: unknown keys ['sumary']")

    def test_missing_key(self):
        del self.rows["get_vm"]["result"]
        self.refused("get_vm: missing ['result']")

    def test_unknown_schema_key(self):
        self.rows["create_vm"]["arguments"]["properties"]["cpus"]["maxmum"] = 3
        self.refused("create_vm: arguments.cpus: unknown keys ['maxmum']")

    def test_unknown_definition(self):
        self.rows["get_vm"]["result"] = {"$ref": "#/$defs/Machine"}
        self.refused("#/$defs/Machine is not defined")

    def test_path_argument_missing(self):
        del self.rows["get_vm"]["arguments"]["properties"]["id"]
        self.rows["get_vm"]["arguments"]["required"] = []
        self.refused("get_vm: path argument id is not in the schema")

    def test_path_argument_optional(self):
        self.rows["get_vm"]["arguments"]["required"] = []
        self.refused("get_vm: path argument id must be required")

    def test_read_only_is_get(self):
        self.rows["get_vm"]["rest"]["method"] = "DELETE"
        self.refused("get_vm: exactly the read-only operations are GET")

    def test_get_is_read_only(self):
        self.rows["start_vm"]["rest"]["method"] = "GET"
        self.refused("start_vm: exactly the read-only operations are GET")

    def test_description_prefix(self):
        self.rows["delete_vm"]["description"] = "WRITES: removes"
        self.refused("delete_vm: description must begin with 'WRITES (destructive): '")

    def test_annotations(self):
        del self.rows["delete_vm"]["annotations"]["idempotent"]
        self.refused("delete_vm: annotations must be")

    def test_unknown_error(self):
        self.rows["delete_vm"]["errors"].append("gone")
        self.refused("delete_vm: unknown errors ['gone']")

    def test_request_without_body(self):
        self.rows["start_vm"]["rest"]["request"] = "StartRequest"
        self.refused("start_vm: request must name the schema of the body")

    def test_error_codes_agree(self):
        del self.table["errors"]["conflict"]
        self.refused("$defs.Error: its codes are not those of errors")

    def test_required_with_default(self):
        self.rows["forward_port"]["arguments"]["required"].append("protocol")
        self.refused("forward_port: argument protocol is required and has a default")

    def test_not_json(self):
        done = run("{")
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
