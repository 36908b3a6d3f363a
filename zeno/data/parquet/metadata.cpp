#include "zeno/data/parquet/metadata.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/data/parquet/thrift.h"

namespace zeno::data::parquet {
namespace {

constexpr size_t kMaxSchema = 50'000;  // nodes; each is kept in memory for the whole file

template <class Enum>
Enum enum_of(int32_t number, Enum last, const char* what) {
  require(number >= 0 && number <= int32_t(last), ErrorKind::data, "{} {} is unknown", what, number);
  return Enum(number);
}

int32_t size_of(int32_t bytes) {
  require(bytes >= 0, ErrorKind::data, "metadata has a size of {}", bytes);
  return bytes;
}

int64_t count_of(int64_t count) {
  require(count >= 0, ErrorKind::data, "metadata has a count of {}", count);
  return count;
}

// The union TimeUnit: which of its fields is there is the value.
int read_time_unit(ThriftReader& in) {
  int digits = 0;
  in.fields([&](int id, ThriftType type) {
    in.skip(type);
    if (id >= 1 && id <= 3) digits = 3 * id;
  });
  return digits;
}

LogicalType read_time(ThriftReader& in, Meaning meaning) {
  LogicalType logical{.meaning = meaning};
  in.fields([&](int id, ThriftType type) {
    if (id == 1) {
      logical.utc = in.boolean(type);
    } else if (id == 2) {
      in.expect_struct(type);
      logical.fraction_digits = read_time_unit(in);
    } else {
      in.skip(type);
    }
  });
  return logical;
}

LogicalType read_decimal(ThriftReader& in) {
  LogicalType logical{.meaning = Meaning::decimal};
  in.fields([&](int id, ThriftType type) {
    if (id == 1) {
      logical.scale = in.int32(type);
    } else if (id == 2) {
      logical.precision = in.int32(type);
    } else {
      in.skip(type);
    }
  });
  return logical;
}

LogicalType read_integer(ThriftReader& in) {
  LogicalType logical;
  in.fields([&](int id, ThriftType type) {
    if (id != 2) return in.skip(type);
    if (!in.boolean(type)) logical.meaning = Meaning::unsigned_integer;
  });
  return logical;
}

// The union LogicalType. Kinds that change nothing for a reader of JSON stay plain.
LogicalType read_logical_type(ThriftReader& in) {
  enum Field { string = 1, map, list, enumeration, decimal, date, time, timestamp, integer = 10, json = 12 };
  enum Field2 { uuid = 14, float16 = 15 };
  LogicalType logical;
  in.fields([&](int id, ThriftType type) {
    in.expect_struct(type);
    switch (id) {
      case decimal:
        logical = read_decimal(in);
        return;
      case time:
        logical = read_time(in, Meaning::time);
        return;
      case timestamp:
        logical = read_time(in, Meaning::timestamp);
        return;
      case integer:
        logical = read_integer(in);
        return;
      case string:
      case enumeration:
      case json:
        logical.meaning = Meaning::text;
        break;
      case map:
        logical.meaning = Meaning::map;
        break;
      case list:
        logical.meaning = Meaning::list;
        break;
      case date:
        logical.meaning = Meaning::date;
        break;
      case uuid:
        logical.meaning = Meaning::uuid;
        break;
      case float16:
        logical.meaning = Meaning::float16;
        break;
    }
    in.skip(type);
  });
  return logical;
}

// What older writers say instead of a logical type.
LogicalType converted_type(int32_t number) {
  constexpr LogicalType kConverted[] = {
      {Meaning::text},                                                     // UTF8
      {Meaning::map},                                                      // MAP
      {Meaning::map},                                                      // MAP_KEY_VALUE
      {Meaning::list},                                                     // LIST
      {Meaning::text},                                                     // ENUM
      {Meaning::decimal},                                                  // DECIMAL
      {Meaning::date},                                                     // DATE
      {.meaning = Meaning::time, .fraction_digits = 3},                    // TIME_MILLIS
      {.meaning = Meaning::time, .fraction_digits = 6},                    // TIME_MICROS
      {.meaning = Meaning::timestamp, .fraction_digits = 3, .utc = true},  // TIMESTAMP_MILLIS
      {.meaning = Meaning::timestamp, .fraction_digits = 6, .utc = true},  // TIMESTAMP_MICROS
      {Meaning::unsigned_integer},                                         // UINT_8
      {Meaning::unsigned_integer},                                         // UINT_16
      {Meaning::unsigned_integer},                                         // UINT_32
      {Meaning::unsigned_integer},                                         // UINT_64
      {},
      {},
      {},
      {},               // INT_8 … INT_64
      {Meaning::text},  // JSON
  };
  return number >= 0 && size_t(number) < std::size(kConverted) ? kConverted[number] : LogicalType{};
}

SchemaElement read_schema_element(ThriftReader& in) {
  SchemaElement element;
  LogicalType converted;
  std::optional<LogicalType> logical;
  int32_t scale = 0, precision = 0;
  in.fields([&](int id, ThriftType type) {
    switch (id) {
      case 1:
        element.physical = enum_of(in.int32(type), PhysicalType::fixed_bytes, "physical type");
        return;
      case 2:
        element.length = in.int32(type);
        return;
      case 3:
        element.repetition = enum_of(in.int32(type), Repetition::repeated, "repetition");
        return;
      case 4:
        element.name = in.binary(type);
        return;
      case 5:
        element.children = size_of(in.int32(type));
        return;
      case 6:
        converted = converted_type(in.int32(type));
        return;
      case 7:
        scale = in.int32(type);
        return;
      case 8:
        precision = in.int32(type);
        return;
      case 10:
        in.expect_struct(type);
        logical = read_logical_type(in);
        return;
      default:
        in.skip(type);
    }
  });
  if (converted.meaning == Meaning::decimal) {
    converted.scale = scale;
    converted.precision = precision;
  }
  element.logical = logical.value_or(converted);
  return element;
}

ColumnChunk read_column_metadata(ThriftReader& in) {
  ColumnChunk chunk;
  int64_t data_offset = 0, dictionary_offset = 0;
  in.fields([&](int id, ThriftType type) {
    switch (id) {
      case 1:
        chunk.physical = enum_of(in.int32(type), PhysicalType::fixed_bytes, "physical type");
        return;
      case 4:
        chunk.codec = enum_of(in.int32(type), Codec::lz4_raw, "compression");
        return;
      case 5:
        chunk.values = count_of(in.int64(type));
        return;
      case 9:
        data_offset = in.int64(type);
        return;
      case 11:
        dictionary_offset = in.int64(type);
        return;
      default:
        in.skip(type);
    }
  });
  // Some writers give 0 for "no dictionary".
  chunk.offset = dictionary_offset > 0 ? std::min(dictionary_offset, data_offset) : data_offset;
  return chunk;
}

ColumnChunk read_column_chunk(ThriftReader& in) {
  std::optional<ColumnChunk> chunk;
  bool encrypted = false;
  in.fields([&](int id, ThriftType type) {
    if (id == 3) {
      in.expect_struct(type);
      chunk = read_column_metadata(in);
      return;
    }
    require(id != 1, ErrorKind::data, "a column is stored in another file; write everything to one file");
    encrypted = encrypted || id == 8;
    in.skip(type);
  });
  require(!encrypted, ErrorKind::data, "a column is encrypted; write the file without encryption");
  require(chunk.has_value(), ErrorKind::data, "a column has no metadata");
  return *chunk;
}

RowGroup read_row_group(ThriftReader& in) {
  RowGroup group;
  in.fields([&](int id, ThriftType type) {
    if (id == 1) {
      in.structs(type, [&] { group.columns.push_back(read_column_chunk(in)); });
    } else if (id == 3) {
      group.rows = count_of(in.int64(type));
    } else {
      in.skip(type);
    }
  });
  require(!group.columns.empty(), ErrorKind::data, "a row group has no columns");
  return group;
}

void read_dictionary_page(ThriftReader& in, PageHeader& header) {
  in.fields([&](int id, ThriftType type) {
    if (id < 1 || id > 2) return in.skip(type);
    const int32_t value = in.int32(type);
    if (id == 1) header.values = size_of(value);
    if (id == 2) header.encoding = enum_of(value, Encoding::byte_stream_split, "encoding");
  });
}

void read_data_page(ThriftReader& in, PageHeader& header) {
  in.fields([&](int id, ThriftType type) {
    if (id < 1 || id > 4) return in.skip(type);
    const int32_t value = in.int32(type);
    if (id == 1) header.values = size_of(value);
    if (id == 2) header.encoding = enum_of(value, Encoding::byte_stream_split, "encoding");
    if (id == 3) header.definition_encoding = enum_of(value, Encoding::byte_stream_split, "encoding");
    if (id == 4) header.repetition_encoding = enum_of(value, Encoding::byte_stream_split, "encoding");
  });
}

void read_data_page_v2(ThriftReader& in, PageHeader& header) {
  in.fields([&](int id, ThriftType type) {
    if (id == 7) {
      header.compressed = in.boolean(type);
      return;
    }
    if (id < 1 || id > 6) return in.skip(type);
    const int32_t value = in.int32(type);
    if (id == 1) header.values = size_of(value);
    if (id == 4) header.encoding = enum_of(value, Encoding::byte_stream_split, "encoding");
    if (id == 5) header.definition_bytes = size_of(value);
    if (id == 6) header.repetition_bytes = size_of(value);
  });
}

}  // namespace

FileMetadata parse_file_metadata(std::string_view footer) {
  ThriftReader in(footer);
  FileMetadata file;
  in.fields([&](int id, ThriftType type) {
    switch (id) {
      case 2:
        in.structs(type, [&] {
          require(file.schema.size() < kMaxSchema, ErrorKind::data,
                  "the schema has more than {} columns and groups", kMaxSchema);
          file.schema.push_back(read_schema_element(in));
        });
        return;
      case 3:
        file.rows = count_of(in.int64(type));
        return;
      case 4:
        in.structs(type, [&] { file.row_groups.push_back(read_row_group(in)); });
        return;
      case 8:
        fail(ErrorKind::data, "the file is encrypted; write it without encryption");
      default:
        in.skip(type);
    }
  });
  return file;
}

PageHeader parse_page_header(std::string_view bytes, size_t& used) {
  ThriftReader in(bytes);
  PageHeader header;
  in.fields([&](int id, ThriftType type) {
    switch (id) {
      case 1:
        header.kind = enum_of(in.int32(type), PageKind::data_v2, "page type");
        return;
      case 2:
        header.bytes = size_of(in.int32(type));
        return;
      case 3:
        header.compressed_bytes = size_of(in.int32(type));
        return;
      case 4:
        header.crc = in.int32(type);
        return;
      case 5:
        in.expect_struct(type);
        return read_data_page(in, header);
      case 7:
        in.expect_struct(type);
        return read_dictionary_page(in, header);
      case 8:
        in.expect_struct(type);
        return read_data_page_v2(in, header);
      default:
        in.skip(type);
    }
  });
  used = in.position();
  return header;
}

}  // namespace zeno::data::parquet
