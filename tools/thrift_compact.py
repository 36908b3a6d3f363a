"""Thrift's compact protocol, as much of it as a Parquet footer has, so that golden_parquet.py can write what pyarrow
does not."""


class Struct:
    """Fields as [number, type, value]."""

    def __init__(self, fields):
        self.fields = fields

    def get(self, number):
        return next((field[2] for field in self.fields if field[0] == number), None)

    def set(self, number, value):
        next(field for field in self.fields if field[0] == number)[2] = value


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def zigzag(self):
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def value(self, kind):
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind == 8:
            size = self.varint()
            self.at += size
            return self.data[self.at - size:self.at]
        if kind == 9:
            head = self.byte()
            count = head >> 4 if head >> 4 < 15 else self.varint()
            return List(head & 15, [self.value(head & 15) for _ in range(count)])
        assert kind == 12, kind
        fields, number = [], 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            fields.append([number, head & 15, self.value(head & 15)])
        return Struct(fields)


class List(list):
    def __init__(self, kind, items):
        super().__init__(items)
        self.kind = kind


def varint(value):
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def zigzag(value):
    return varint(value << 1 if value >= 0 else -value * 2 - 1)


def written(kind, value):
    if kind in (1, 2):
        return b""
    if kind == 3:
        return bytes([value])
    if kind in (4, 5, 6):
        return zigzag(value)
    if kind == 8:
        return varint(len(value)) + value
    if kind == 9:
        element = getattr(value, "kind", 12)
        head = bytes([len(value) << 4 | element]) if len(value) < 15 else bytes([240 | element]) + varint(len(value))
        return head + b"".join(written(element, item) for item in value)
    out, before = b"", 0
    for number, field_kind, item in value.fields:
        if field_kind in (1, 2):
            field_kind = 1 if item else 2
        step = number - before
        out += bytes([step << 4 | field_kind]) if 0 < step < 16 else bytes([field_kind]) + zigzag(number)
        out += written(field_kind, item)
        before = number
    return out + b"\0"


def edit_footer(path, edit):
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    footer = Reader(data[-8 - size:-8]).value(12)
    assert written(12, footer) == data[-8 - size:-8]
    edit(footer)
    new = written(12, footer)
    path.write_bytes(data[:-8 - size] + new + len(new).to_bytes(4, "little") + b"PAR1")
