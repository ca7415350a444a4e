#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Turns the table of operations into what is built from it.

  --format c        the rows of daemon/vmm-operations.h, with the OpenAPI document as a string
  --format openapi  the OpenAPI 3.1 document as YAML
  --format check    nothing; only judges the table

The table is judged first whatever the format: a mistake in it ends the build with a sentence.
"""

import argparse
import json
import re
import sys

ROW_KEYS = {
    "name", "title", "description", "kind", "annotations", "tool", "operation_id", "rest", "dbus",
    "arguments", "result", "errors",
}
ROW_OPTIONAL = {"operation_id", "rest"}
TOP_KEYS = {
    "title", "version", "server", "description", "errors", "common_errors", "operations", "$defs",
}
ANNOTATIONS = ("read_only", "destructive", "idempotent", "open_world")
KINDS = ("call", "job", "stream")
REST_KEYS = {"method", "path", "success", "request", "content_type"}
SCHEMA_KEYS = {
    "type", "description", "properties", "required", "additionalProperties", "items", "enum",
    "default", "minimum", "maximum", "minItems", "pattern", "format", "anyOf", "$ref",
    "x-judged-by",
}
TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}
MARKER = "x-judged-by"


class TableError(Exception):
    pass


def check(good, message):
    if not good:
        raise TableError(message)


def path_parameters(row):
    return re.findall(r"\{([^}]*)\}", row["rest"]["path"]) if "rest" in row else []


def body_parameters(row):
    """The arguments that are not in the path."""
    inside = path_parameters(row)
    return [name for name in row["arguments"]["properties"] if name not in inside]


def has_body(row):
    return "rest" in row and row["rest"]["method"] in ("POST", "PUT", "PATCH") \
        and bool(body_parameters(row))


# --- judging the table -------------------------------------------------------------------------


def check_schema(schema, where, defs):
    check(isinstance(schema, dict), f"{where}: a schema must be an object")
    unknown = set(schema) - SCHEMA_KEYS
    check(not unknown, f"{where}: unknown keys {sorted(unknown)}")
    if "$ref" in schema:
        check(set(schema) == {"$ref"}, f"{where}: nothing may stand beside $ref")
        prefix, _, name = schema["$ref"].rpartition("/")
        check(prefix == "#/$defs" and name in defs, f"{where}: {schema['$ref']} is not defined")
        return
    check(schema.get("type", "null") in TYPES, f"{where}: type {schema.get('type')} is unknown")
    check(schema.get(MARKER, "service") == "service", f"{where}: {MARKER} must be service")
    properties = schema.get("properties", {})
    for name, inner in properties.items():
        check_schema(inner, f"{where}.{name}", defs)
    for name in schema.get("required", []):
        check(name in properties, f"{where}: required {name} is no property")
    if "items" in schema:
        check_schema(schema["items"], f"{where}[]", defs)
    if isinstance(schema.get("additionalProperties"), dict):
        check_schema(schema["additionalProperties"], f"{where}.*", defs)
    for inner in schema.get("anyOf", []):
        check_schema(inner, where, defs)


def check_arguments(row, where, defs):
    arguments = row["arguments"]
    check_schema(arguments, f"{where}: arguments", defs)
    check(arguments.get("type") == "object", f"{where}: arguments must be of type object")
    for key in ("properties", "required"):
        check(key in arguments, f"{where}: arguments lack {key}")
    for name, schema in arguments["properties"].items():
        check(re.fullmatch(r"[a-z][a-z0-9_]*", name), f"{where}: argument {name} is not snake_case")
        check("description" in schema, f"{where}: argument {name} lacks a description")
        check("type" in schema, f"{where}: argument {name} lacks a type")
        check(name not in arguments["required"] or "default" not in schema,
              f"{where}: argument {name} is required and has a default")


def check_rest(row, where):
    rest = row["rest"]
    method = rest.get("method")
    check(set(rest) <= REST_KEYS, f"{where}: unknown keys in rest: {sorted(set(rest) - REST_KEYS)}")
    check(method in ("GET", "POST", "PUT", "PATCH", "DELETE"), f"{where}: method {method}")
    check(rest.get("success") in (200, 201, 202, 204), f"{where}: success {rest.get('success')}")
    check(re.fullmatch(r"(/([a-z0-9.-]+|\{[a-z]+\}))+", rest.get("path", "")),
          f"{where}: path {rest.get('path')}")
    check((method == "GET") == row["annotations"]["read_only"],
          f"{where}: exactly the read-only operations are GET")
    check("operation_id" in row, f"{where}: operation_id is missing")
    check(("request" in rest) == has_body(row),
          f"{where}: request must name the schema of the body, and only where there is one")
    for name in path_parameters(row):
        schema = row["arguments"]["properties"].get(name)
        check(schema is not None, f"{where}: path argument {name} is not in the schema")
        check(schema["type"] == "string", f"{where}: path argument {name} must be a string")
        check(name in row["arguments"]["required"], f"{where}: path argument {name} must be required")


def check_row(row, table):
    where = row.get("name", "a row without a name")
    keys = set(row)
    check(keys <= ROW_KEYS, f"{where}: unknown keys {sorted(keys - ROW_KEYS)}")
    missing = ROW_KEYS - ROW_OPTIONAL - keys
    check(not missing, f"{where}: missing {sorted(missing)}")
    check(re.fullmatch(r"[a-z]+(_[a-z]+)*", row["name"]), f"{where}: the name is not snake_case")
    check(row["kind"] in KINDS, f"{where}: kind {row['kind']}")
    check(isinstance(row["tool"], bool), f"{where}: tool must be true or false")
    check(set(row["annotations"]) == set(ANNOTATIONS)
          and all(isinstance(value, bool) for value in row["annotations"].values()),
          f"{where}: annotations must be {', '.join(ANNOTATIONS)}, each true or false")
    check(not (row["annotations"]["read_only"] and row["annotations"]["destructive"]),
          f"{where}: read-only and destructive")
    prefix = "Read-only. " if row["annotations"]["read_only"] else \
        "WRITES (destructive): " if row["annotations"]["destructive"] else "WRITES: "
    check(row["description"].startswith(prefix), f"{where}: description must begin with {prefix!r}")
    check(set(row["dbus"]) == {"interface", "method"}, f"{where}: dbus needs interface and method")
    unknown = set(row["errors"]) - set(table["errors"])
    check(not unknown, f"{where}: unknown errors {sorted(unknown)}")
    check_arguments(row, where, table["$defs"])
    check_schema(row["result"], f"{where}: result", table["$defs"])
    if "rest" in row:
        check_rest(row, where)


def check_unique(rows, what, key):
    seen = {}
    for row in rows:
        value = key(row)
        if value is None:
            continue
        check(value not in seen, f"{row['name']} and {seen.get(value)} have the same {what}: {value}")
        seen[value] = row["name"]


def route_shape(row):
    if "rest" not in row:
        return None
    return row["rest"]["method"] + " " + re.sub(r"\{[^}]*\}", "{}", row["rest"]["path"])


def check_table(table):
    check(set(table) == TOP_KEYS, f"the table must have {sorted(TOP_KEYS)}, not {sorted(table)}")
    for name, schema in table["$defs"].items():
        check("description" in schema, f"$defs.{name}: lacks a description")
        check_schema(schema, f"$defs.{name}", table["$defs"])
    codes = table["$defs"]["Error"]["properties"]["error"]["properties"]["code"]["enum"]
    check(set(codes) == set(table["errors"]), "$defs.Error: its codes are not those of errors")
    check(set(table["common_errors"]) <= set(table["errors"]), "common_errors: unknown codes")
    for row in table["operations"]:
        check_row(row, table)
    rows = table["operations"]
    check_unique(rows, "name", lambda row: row["name"])
    check_unique(rows, "operation_id", lambda row: row.get("operation_id"))
    check_unique(rows, "D-Bus method", lambda row: row["dbus"]["interface"] + "." + row["dbus"]["method"])
    check_unique(rows, "route", route_shape)
    check_unique(rows, "request", lambda row: row.get("rest", {}).get("request"))


def no_duplicates(pairs):
    keys = [key for key, _ in pairs]
    for key in keys:
        check(keys.count(key) == 1, f"member {key} twice in one object")
    return dict(pairs)


# --- schemas ------------------------------------------------------------------------------------


def references(schema):
    """The names of all definitions that a schema mentions."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def self_contained(schema, defs):
    """The schema with the definitions it needs."""
    needed = []
    queue = list(references(schema))
    while queue:
        name = queue.pop(0)
        if name not in needed:
            needed.append(name)
            queue.extend(references(defs[name]))
    if not needed:
        return schema
    return {**schema, "$defs": {name: defs[name] for name in needed}}


def for_openapi(value):
    if isinstance(value, list):
        return [for_openapi(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for key, inner in value.items():
        if key == MARKER:
            continue
        if key == "$ref":
            inner = inner.replace("#/$defs/", "#/components/schemas/")
        out[key] = for_openapi(inner)
    return out


# --- OpenAPI ------------------------------------------------------------------------------------


def error_responses(row, table):
    by_status = {}
    for code in table["errors"]:
        if code in row["errors"] or code in table["common_errors"]:
            by_status.setdefault(table["errors"][code]["status"], []).append(code)
    responses = {}
    for status, codes in sorted(by_status.items()):
        text = " ".join(f"{code}: {table['errors'][code]['description']}" for code in codes)
        response = {
            "description": text,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        if status == 401:
            response["headers"] = {
                "WWW-Authenticate": {
                    "description": "How to become known.",
                    "schema": {"type": "string"},
                }
            }
        responses[str(status)] = response
    return responses


def parameters(row):
    out = []
    inside = path_parameters(row)
    for name, schema in row["arguments"]["properties"].items():
        if name not in inside and (has_body(row) or row["rest"]["method"] != "GET"):
            continue
        schema = for_openapi(schema)
        description = schema.pop("description")
        out.append({
            "name": name,
            "in": "path" if name in inside else "query",
            "required": name in inside,
            "description": description,
            "schema": schema,
        })
    return out


def operation_object(row, table):
    rest = row["rest"]
    operation = {
        "operationId": row["operation_id"],
        "summary": row["title"],
        "description": row["description"],
        "tags": [row["dbus"]["interface"].rpartition(".")[2]],
    }
    if parameters(row):
        operation["parameters"] = parameters(row)
    if has_body(row):
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {
                "schema": {"$ref": "#/components/schemas/" + rest["request"]}}},
        }
    success = {"description": "Done."}
    if rest["success"] != 204:
        success["description"] = row["result"].get("description", row["title"] + ".")
        success["content"] = {
            rest.get("content_type", "application/json"): {"schema": for_openapi(row["result"])}}
    operation["responses"] = {str(rest["success"]): success, **error_responses(row, table)}
    return operation


def request_schema(row):
    names = body_parameters(row)
    schema = {
        "type": "object",
        "description": "Body of " + row["operation_id"] + ".",
        "properties": {name: row["arguments"]["properties"][name] for name in names},
        "additionalProperties": False,
    }
    required = [name for name in row["arguments"]["required"] if name in names]
    if required:
        schema["required"] = required
    return schema


def openapi(table):
    paths = {}
    schemas = dict(table["$defs"])
    for row in table["operations"]:
        if "rest" not in row:
            continue
        path = paths.setdefault(row["rest"]["path"], {})
        path[row["rest"]["method"].lower()] = operation_object(row, table)
        if has_body(row):
            schemas[row["rest"]["request"]] = request_schema(row)
    used = set()
    for row in table["operations"]:
        if "rest" in row:
            if row["rest"]["success"] != 204:
                used.update(self_contained(row["result"], table["$defs"]).get("$defs", {}))
            if has_body(row):
                used.add(row["rest"]["request"])
    used.add("Error")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": table["title"],
            "version": table["version"],
            "description": table["description"],
            "license": {"name": "LGPL-2.1-or-later", "identifier": "LGPL-2.1-or-later"},
        },
        "servers": [{"url": table["server"]}],
        "security": [{}, {"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Where the service is set up to ask for tokens.",
                }
            },
            "schemas": {name: for_openapi(schemas[name]) for name in sorted(schemas) if name in used},
        },
    }


# --- YAML ---------------------------------------------------------------------------------------

WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def yaml_string(text):
    """A JSON string is a YAML string as long as it names no character by a pair of escapes."""
    return json.dumps(text, ensure_ascii=False)


def yaml_key(key):
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", key) and key.lower() not in WORDS:
        return key
    return yaml_string(key)


def yaml_lines(value, indent):
    """Lines of a value that stands on lines of its own, or one string for one that does not."""
    pad = "  " * indent
    if isinstance(value, dict) and value:
        lines = []
        for key, inner in value.items():
            rest = yaml_lines(inner, indent + 1)
            if isinstance(rest, str):
                lines.append(f"{pad}{yaml_key(key)}: {rest}")
            else:
                lines.append(f"{pad}{yaml_key(key)}:")
                lines.extend(rest)
        return lines
    if isinstance(value, list) and value:
        lines = []
        for inner in value:
            rest = yaml_lines(inner, indent + 1)
            if isinstance(rest, str):
                lines.append(f"{pad}- {rest}")
            else:
                lines.append(pad + "- " + rest[0].lstrip(" "))
                lines.extend(rest[1:])
        return lines
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    return yaml_string(value) if isinstance(value, str) else json.dumps(value)


def yaml(document):
    return "\n".join(yaml_lines(document, 0)) + "\n"


# --- C ------------------------------------------------------------------------------------------


def c_string(text):
    if text is None:
        return "NULL"
    out = []
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif char == "\n":
            out.append("\\n")
        elif char == "?":
            out.append("\\?")
        elif 0x20 <= byte < 0x7f:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def c_long_string(text, pad):
    """One literal a line, so that the file can be read and compared."""
    pieces = text.splitlines(keepends=True)
    return ("\n" + pad).join(c_string(piece) for piece in pieces)


def c_flags(row):
    flags = [f"VMM_OPERATION_{name.upper()}" for name in ANNOTATIONS if row["annotations"][name]]
    return " | ".join(flags) or "0"


def c_row(row, table):
    rest = row.get("rest", {})
    compact = {"separators": (",", ":")}
    fields = [
        ("name", c_string(row["name"])),
        ("title", c_string(row["title"])),
        ("description", c_string(row["description"])),
        ("kind", f"VMM_OPERATION_KIND_{row['kind'].upper()}"),
        ("flags", c_flags(row)),
        ("method", c_string(rest.get("method"))),
        ("path", c_string(rest.get("path"))),
        ("success_status", str(rest.get("success", 200))),
        ("content_type", c_string(rest.get("content_type", "application/json"))),
        ("has_body", "TRUE" if has_body(row) else "FALSE"),
        ("dbus_interface", c_string(row["dbus"]["interface"])),
        ("dbus_method", c_string(row["dbus"]["method"])),
        ("operation_id", c_string(row.get("operation_id"))),
        ("parameters", c_string(json.dumps(row["arguments"], **compact))),
        ("result", c_string(json.dumps(self_contained(row["result"], table["$defs"]), **compact))),
        ("tool", "TRUE" if row["tool"] else "FALSE"),
    ]
    return "  {\n" + "".join(f"    .{name} = {value},\n" for name, value in fields) + "  },\n"


def c_source(table):
    return (
        "/* SPDX-License-Identifier: LGPL-2.1-or-later */\n"
        "/* Generated by gen-operations.py from operations.json: do not edit. */\n\n"
        '#include "daemon/vmm-operations.h"\n\n'
        "const VmmOperation vmm_operations[] = {\n"
        + "".join(c_row(row, table) for row in table["operations"])
        + "};\n\nconst guint vmm_n_operations = G_N_ELEMENTS (vmm_operations);\n\n"
        + "const char *const vmm_openapi_document\n  = "
        + c_long_string(yaml(openapi(table)), "    ")
        + ";\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=("c", "openapi", "check"), required=True)
    parser.add_argument("--output", help="file to write; default: the standard output")
    parser.add_argument("table")
    options = parser.parse_args()

    try:
        with open(options.table, encoding="utf-8") as file:
            table = json.load(file, object_pairs_hook=no_duplicates)
        check_table(table)
    except (TableError, ValueError, KeyError, OSError) as error:
        sys.exit(f"{options.table}: {error}")

    text = {"c": c_source, "openapi": lambda t: yaml(openapi(t)), "check": lambda t: ""}[
        options.format](table)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
