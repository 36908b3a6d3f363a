"""Writes tests/golden/parquet: small Parquet files of every type, encoding, codec and page version that the hub keeps,
and their rows as JSON, as pyarrow reads them. Needs pyarrow (26.0.1 wrote what is committed).

    python3 tools/golden_parquet.py
"""
import base64
import datetime
import decimal
import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

import thrift_compact

FOLDER = pathlib.Path(__file__).parent.parent / "tests/golden/parquet"
CODECS = {"none": "none", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd"}


# What docs/data.md says of each type.
def timestamp(value, unit, utc):
    seconds, fraction = divmod(value, 10**unit)
    text = (datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)).isoformat(timespec="seconds")
    return text + (f".{fraction:0{unit}}" if fraction else "") + ("Z" if utc else "")


UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def plain(value, kind):
    """The JSON that a reader is expected to give for a value of an Arrow type."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {(key if isinstance(key, str) else json.dumps(key)): plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_timestamp(kind):
        return timestamp(value, UNITS[kind.unit], kind.tz is not None)
    if pa.types.is_time(kind):
        unit = UNITS[kind.unit]
        seconds, fraction = divmod(value, 10**unit)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return clock + (f".{fraction:0{unit}}" if fraction else "")
    if pa.types.is_date(kind):
        return value.isoformat()
    if pa.types.is_decimal(kind):
        if kind.precision > 15:
            return format(value, "f")
        return float(value) if kind.scale else int(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"bytes": list(value), "subtype": None}
    return value


def expect(name, table):
    # Python's times know no nanoseconds.
    counted = {"timestamp": pa.int64(), "time64": pa.int64(), "time32": pa.int32()}
    columns = [column.cast(counted.get(str(column.type).split("[")[0], column.type)) for column in table.columns]
    rows = [{field.name: plain(row[field.name], field.type) for field in table.schema}
            for row in pa.table(columns, table.column_names).to_pylist()]
    (FOLDER / f"{name}.json").write_text(json.dumps(rows, ensure_ascii=False, separators=(",", ":")) + "\n")


def write(name, table, **options):
    options = {"store_schema": False, "write_statistics": False, "data_page_size": 64, "write_batch_size": 8, **options}
    pq.write_table(table, FOLDER / f"{name}.parquet", **options)


def every_type(rows=21):
    def column(kind, make, nullable=True):
        values = [None if nullable and i % 5 == 3 else make(i) for i in range(rows)]
        return pa.array(values, kind)

    day = datetime.date(1969, 12, 20)
    dec = decimal.Decimal
    columns = {
        "flag": column(pa.bool_(), lambda i: i % 3 == 0),
        "int8": column(pa.int8(), lambda i: i * 12 - 128),
        "uint8": column(pa.uint8(), lambda i: 255 - i),
        "int32": column(pa.int32(), lambda i: (-1) ** i * (2**31 - 1 - i)),
        "uint32": column(pa.uint32(), lambda i: 2**32 - 1 - i),
        "int64": column(pa.int64(), lambda i: (-1) ** i * (2**63 - 1 - i)),
        "uint64": column(pa.uint64(), lambda i: 2**64 - 1 - i),
        "half": pa.array([None if i % 5 == 3 else i / 8 for i in range(rows)], pa.float16()),
        "float": column(pa.float32(), lambda i: i * 0.1),
        "double": column(pa.float64(), lambda i: -i * 1e-300),
        "text": column(pa.string(), lambda i: "äöü 😀 \n\"\t\x01\\" * (i % 4) + str(i)),
        "same": column(pa.string(), lambda i: "one of two" if i % 2 else "two of two"),
        "bytes": column(pa.binary(), lambda i: b"plain" if i % 2 else b"\xff\x00" + bytes([i])),
        "fixed": column(pa.binary(3), lambda i: b"ab" + bytes([97 + i])),
        "day": column(pa.date32(), lambda i: day + datetime.timedelta(days=i * 2000)),
        "time_ms": column(pa.time32("ms"), lambda i: i * 4_000_001 % 86_400_000),
        "time_us": column(pa.time64("us"), lambda i: i * 4_000_000_001 % 86_400_000_000),
        "time_ns": column(pa.time64("ns"), lambda i: i * 1_000_000_000),
        "stamp_ms": column(pa.timestamp("ms"), lambda i: i * 10**11 - 10**12),
        "stamp_us": column(pa.timestamp("us", "UTC"), lambda i: i * 10**14 - 10**15 + i),
        "stamp_ns": column(pa.timestamp("ns"), lambda i: i * 10**17 - 1),
        "price": column(pa.decimal128(9, 2), lambda i: dec(i * 1001 - 7000) / 100),
        "count": column(pa.decimal128(5, 0), lambda i: dec(i * 1001 - 7000)),
        "long": column(pa.decimal128(38, 10), lambda i: dec(-(10**27) + i).scaleb(-10)),
        "longer": column(pa.decimal256(76, 40), lambda i: dec("0.00000000000000000000000000000000000001") * i),
        "nothing": pa.nulls(rows),
        "required": column(pa.int32(), lambda i: i, nullable=False),
    }
    fields = [pa.field(name, array.type, nullable=name != "required") for name, array in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


ENCODINGS = {
    "plain_int": (pa.int64(), "PLAIN", lambda i: i),
    "plain_text": (pa.string(), "PLAIN", lambda i: f"text {i}"),
    "rle_flag": (pa.bool_(), "RLE", lambda i: i % 100 < 50),
    "delta_int32": (pa.int32(), "DELTA_BINARY_PACKED", lambda i: (i * 2654435761) % 2**32 - 2**31),
    "delta_int64": (pa.int64(), "DELTA_BINARY_PACKED", lambda i: (i * 11400714819323198485) % 2**64 - 2**63),
    "delta_even": (pa.int64(), "DELTA_BINARY_PACKED", lambda i: i * 7 - 100),
    "delta_length": (pa.string(), "DELTA_LENGTH_BYTE_ARRAY", lambda i: "x" * (i % 7)),
    "delta_text": (pa.string(), "DELTA_BYTE_ARRAY", lambda i: f"https://example.org/page/{i // 3}"),
    "delta_fixed": (pa.binary(4), "DELTA_BYTE_ARRAY", lambda i: b"%04d" % i),
    "split_float": (pa.float32(), "BYTE_STREAM_SPLIT", lambda i: i * 0.25),
    "split_double": (pa.float64(), "BYTE_STREAM_SPLIT", lambda i: i / 3),
    "split_int32": (pa.int32(), "BYTE_STREAM_SPLIT", lambda i: -i),
    "split_int64": (pa.int64(), "BYTE_STREAM_SPLIT", lambda i: i * 2**40),
    "split_fixed": (pa.binary(3), "BYTE_STREAM_SPLIT", lambda i: b"%03d" % i),
}


def every_encoding(rows=150):
    return pa.table({
        name: pa.array([None if i % 11 == 4 else make(i) for i in range(rows)], kind)
        for name, (kind, _, make) in ENCODINGS.items()
    })


def nested(rows=12):
    turn = pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.float64())])
    kinds = {
        "ints": pa.list_(pa.int32()),
        "deep": pa.list_(pa.list_(pa.list_(pa.string()))),
        "messages": pa.list_(turn),
        "turns": pa.list_(pa.list_(turn)),
        "inner": pa.struct([("a", pa.struct([("b", pa.int64()), ("c", pa.list_(pa.bool_()))])), ("d", pa.string())]),
        "map": pa.map_(pa.string(), pa.list_(pa.int32())),
        "numbered": pa.map_(pa.int32(), pa.struct([("x", pa.string())])),
        "tools": pa.list_(pa.struct([("name", pa.string()), ("arguments", pa.map_(pa.string(), pa.string()))])),
    }
    say = lambda i, j: {"role": "user" if j % 2 else None, "content": f"turn {j} of {i} ä", "weight": j / 2 if i % 3 else None}
    values = {
        "ints": [[], None, [None], [1], [2, None, 3], [None, None], [4, 5, 6, 7]],
        "deep": [None, [], [None], [[]], [[None]], [[[]]], [[[None]]], [[["a"], ["b", "c"]], [], None, [["d"]]]],
        "messages": [[], None, [None], [say(1, 0)], [say(2, j) for j in range(5)], [say(3, 0), None, say(3, 1)]],
        "turns": [[[say(0, 0), say(0, 1)], [], [say(0, 2)]], None, [], [None, [None], [say(3, 0)]]],
        "inner": [None, {"a": None, "d": "x"}, {"a": {"b": 1, "c": []}, "d": None}, {"a": {"b": None, "c": None}, "d": "y"},
                  {"a": {"b": 2, "c": [True, None, False]}, "d": "z"}],
        "map": [None, [], [("k", [1, 2])], [("a", None), ("b", []), ("c", [None])]],
        "numbered": [[(1, {"x": "one"}), (2, None)], [], None],
        "tools": [None, [], [{"name": "f", "arguments": [("city", "Rome"), ("unit", None)]}, {"name": "g", "arguments": None}]],
    }
    fill = lambda some: [some[i % len(some)] for i in range(rows)]
    return pa.table({name: pa.array(fill(values[name]), kind) for name, kind in kinds.items()})


def chats():
    talk = lambda i: [{"role": "user", "content": f"What is {i} + {i}?"}, {"role": "assistant", "content": f"{i + i}"}]
    return pa.table({"id": [f"chat-{i}" for i in range(6)], "messages": [talk(i) for i in range(6)]})


# Older writers leave out the group between a list and its elements. Levels and pages stay the same when it is
# required, so the footer alone is changed; pyarrow must still read the same rows.
def two_levels():
    point = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string(), nullable=False)])
    schema = pa.schema([
        pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
        pa.field("points", pa.list_(pa.field("element", point, nullable=False))),
        pa.field("one", pa.list_(pa.field("element", pa.struct([pa.field("only", pa.int32())]), nullable=False))),
        pa.field("bare", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False),
    ])
    rows = [
        {"tags": ["a", "b"], "points": [{"x": 1, "y": "p"}, {"x": None, "y": "q"}], "one": [{"only": 7}], "bare": [1, 2]},
        {"tags": [], "points": [], "one": [], "bare": []},
        {"tags": None, "points": None, "one": None, "bare": [3]},
        {"tags": ["c"], "points": [{"x": 2, "y": "r"}], "one": [{"only": None}, {"only": 8}], "bare": []},
    ]
    table = pa.Table.from_pylist(rows, schema)
    write("two_levels", table)
    thrift_compact.edit_footer(FOLDER / "two_levels.parquet", without_middle_groups)
    assert pq.read_table(FOLDER / "two_levels.parquet").to_pylist() == rows
    expect("two_levels", table)


def without_middle_groups(footer):
    REPETITION, NAME, CHILDREN, CONVERTED, LOGICAL = 3, 4, 5, 6, 10
    old, new, at = footer.get(2), [], 0
    names = {"tags": b"array", "points": b"points_tuple", "one": b"array"}
    while at < len(old):
        element = old[at]
        name = element.get(NAME).decode()
        at += 1
        if name == "bare":  # repeated, and no list at all
            leaf = old[at + 1]
            leaf.set(NAME, b"bare")
            leaf.set(REPETITION, 2)
            new.append(leaf)
            at += 2
            continue
        new.append(element)
        if name in names:
            leaf = old[at + 1]  # old[at] is the group in between
            leaf.set(NAME, names[name])
            leaf.set(REPETITION, 2)
            new.append(leaf)
            at += 2
    footer.set(2, new)


# pyarrow wants somebody to keep the keys; nobody has to read these files.
class NoKeys(pe.KmsClient):
    def wrap_key(self, key_bytes, master_key_identifier):
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return base64.b64decode(wrapped_key)


def encrypted(name, plaintext_footer):
    factory = pe.CryptoFactory(lambda config: NoKeys())
    settings = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["id"]}, plaintext_footer=plaintext_footer)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    write(name, chats(), encryption_properties=properties)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    expect("types", every_type())
    expect("encodings", every_encoding())
    expect("nested", nested())
    for codec in CODECS:
        for version in ("1.0", "2.0"):
            name = f"{codec}_v{version[0]}"
            options = {"compression": codec, "data_page_version": version, "row_group_size": 13}
            write(f"types_{name}", every_type(), **options)
            write(f"nested_{name}", nested(), **options, use_dictionary=codec != "snappy")
    for version in ("1.0", "2.0"):
        write(f"encodings_zstd_v{version[0]}", every_encoding(), compression="zstd", data_page_version=version,
              use_dictionary=False, data_page_size=400, row_group_size=100, write_page_checksum=True,
              column_encoding={name: encoding for name, (_, encoding, _) in ENCODINGS.items()})
    expect("chats", chats())
    write("chats", chats(), store_schema=True, write_statistics=True, write_page_index=True)
    write("chats_small", chats().slice(0, 2), compression="gzip", write_page_checksum=True)
    expect("chats_small", chats().slice(0, 2))
    stamps = pa.table({"when": pa.array([None, -1, 0, 1_700_000_000_123_456_789], pa.timestamp("ns"))})
    write("int96", stamps, use_deprecated_int96_timestamps=True)
    expect("int96", stamps)
    write("empty", chats().slice(0, 0))
    expect("empty", chats().slice(0, 0))
    two_levels()
    write("brotli", chats().slice(0, 1), compression="brotli")
    write("lz4", chats().slice(0, 1), compression="lz4")
    encrypted("encrypted_footer", plaintext_footer=False)
    encrypted("encrypted_column", plaintext_footer=True)


main()
