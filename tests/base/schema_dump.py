"""A schema as plain data, from the catalogue of either database, so that two can be compared."""

from __future__ import annotations

import re
import warnings
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SAWarning

# By table, then by kind (`columns`, `indexes`, ...), then by name.
Schema = dict[str, dict[str, Any]]

_COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull,
        pg_get_expr(d.adbin, d.adrelid) AS default_value, a.attidentity, a.attgenerated
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0
        AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum
"""
_COLLATIONS = """
    SELECT c.relname, a.attname, o.collname
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        JOIN pg_collation o ON o.oid = a.attcollation
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0
"""
_CONSTRAINTS = """
    SELECT r.relname, c.conname, c.contype, c.convalidated, pg_get_constraintdef(c.oid)
    FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
    WHERE c.connamespace = current_schema()::regnamespace
"""
_INDEXES = """
    SELECT t.relname, i.relname, pg_get_indexdef(x.indexrelid), x.indisunique, x.indisvalid
    FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
    WHERE t.relnamespace = current_schema()::regnamespace
"""
_SEQUENCES = """
    SELECT t.relname, a.attname, s.relname, format_type(q.seqtypid, NULL), q.seqstart,
        q.seqincrement, q.seqmax, q.seqmin, q.seqcycle
    FROM pg_sequence q JOIN pg_class s ON s.oid = q.seqrelid
        LEFT JOIN pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i')
            AND d.refclassid = 'pg_class'::regclass
        LEFT JOIN pg_class t ON t.oid = d.refobjid
        LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
    WHERE s.relnamespace = current_schema()::regnamespace
"""
# Views, functions, triggers and the like: torchyard makes none.
_OTHERS = """
    SELECT 'relation', relname FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind NOT IN ('r', 'i', 'S')
    UNION ALL SELECT 'function', proname FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace
    UNION ALL SELECT 'trigger', tgname FROM pg_trigger WHERE NOT tgisinternal
"""


def describe(connection: sa.Connection) -> Schema:
    """Every table with all that the database knows of it."""
    if connection.dialect.name == "sqlite":
        return _describe_sqlite(connection)
    return _describe_postgres(connection)


def rows(connection: sa.Connection) -> dict[str, list[str]]:
    """Every table's rows, as text and sorted."""
    tables = sa.MetaData()
    with warnings.catch_warnings():
        # An index of an expression can't be described, and rows need none.
        warnings.filterwarnings("ignore", "Skipped unsupported reflection", SAWarning)
        tables.reflect(connection)
    return {
        table.name: sorted(repr(tuple(row)) for row in connection.execute(sa.select(table)))
        for table in tables.sorted_tables
    }


def _describe_sqlite(connection: sa.Connection) -> Schema:
    master = connection.exec_driver_sql("SELECT type, name, tbl_name, sql FROM sqlite_master").all()
    schema: Schema = {}
    for kind, table, _, sql in master:
        if kind == "table":
            columns = _pragma(connection, "table_xinfo", table, key="name")
            for column in columns.values():
                if column["type"] == "INTEGER" and column["dflt_value"]:
                    # SQLite stores a number whether the default is quoted or not.
                    column["dflt_value"] = column["dflt_value"].strip("'")
            schema[table] = {
                "columns": columns,
                "column_order": list(columns),
                "foreign_keys": _pragma(connection, "foreign_key_list", table, key="from"),
                "indexes": _pragma(connection, "index_list", table, key="name"),
                "clauses": _clauses(sql),
            }
    for kind, name, table, sql in master:
        if kind == "index":
            index = schema[table]["indexes"][name]
            index["columns"] = _pragma(connection, "index_xinfo", name, key="seqno")
            index["sql"] = sql and " ".join(sql.split())
        elif kind != "table":
            schema[table].setdefault(kind, {})[name] = sql
    return schema


def _pragma(connection: sa.Connection, pragma: str, name: str, key: str) -> dict[str, Any]:
    rows = connection.exec_driver_sql(f'PRAGMA {pragma}("{name}")').mappings()
    # Numbers that only say in which order things were made.
    numbers = {"cid", "id"} if pragma != "index_list" else {"seq"}
    return {
        str(row[key]): {name: value for name, value in row.items() if name not in numbers}
        for row in rows
    }


def _clauses(sql: str) -> list[str]:
    """What a CREATE TABLE holds between its parentheses, sorted; then its options.

    SQLite writes an added column behind the constraints.
    """
    parts = re.fullmatch(r"CREATE TABLE [^(]+\((.*)\)([^)]*)", sql, re.DOTALL)
    assert parts is not None, sql
    inside, options = parts.groups()
    inside = re.sub(r"INTEGER DEFAULT '(\d+)'", r"INTEGER DEFAULT \1", inside)
    clauses = [""]
    depth = 0
    for character in inside:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            clauses.append("")
        else:
            clauses[-1] += character
    return [*sorted(" ".join(clause.split()) for clause in clauses), options.strip()]


def _describe_postgres(connection: sa.Connection) -> Schema:
    schema: Schema = {}

    def put(kind: str, query: str, names: int = 1) -> None:
        for table, *row in connection.exec_driver_sql(query):
            about = schema.setdefault(table, {}).setdefault(kind, {})
            about[" ".join(map(str, row[:names]))] = tuple(row[names:])

    put("columns", _COLUMNS)
    put("collations", _COLLATIONS)
    for about in schema.values():
        about["column_order"] = list(about["columns"])
    put("constraints", _CONSTRAINTS)
    put("indexes", _INDEXES)
    put("sequences", _SEQUENCES, names=2)
    put("others", _OTHERS)
    return schema
