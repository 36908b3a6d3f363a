// The contents of the footer of a Parquet file and of the headers of its pages. Plain data, parsed from
// Thrift with the limits that keep memory in proportion to the bytes parsed; whether the parts fit together
// is checked where they are used. An Error(data) thrown here has only the reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/parquet/logical_type.h"

namespace zeno::data::parquet {

enum class Repetition { required, optional, repeated };
enum class Codec { uncompressed, snappy, gzip, lzo, brotli, lz4, zstd, lz4_raw };
enum class Encoding {
  plain = 0,
  plain_dictionary = 2,
  rle = 3,
  bit_packed = 4,
  delta_binary_packed = 5,
  delta_length_byte_array = 6,
  delta_byte_array = 7,
  rle_dictionary = 8,
  byte_stream_split = 9,
};
enum class PageKind { data = 0, index = 1, dictionary = 2, data_v2 = 3 };

// One node of the schema's tree, which the file lists depth first.
struct SchemaElement {
  std::string name;
  Repetition repetition = Repetition::required;
  int32_t children = 0;                  // 0: a column
  std::optional<PhysicalType> physical;  // of a column
  int32_t length = 0;                    // of fixed_bytes
  LogicalType logical;
};

// The values of one column in one row group.
struct ColumnChunk {
  PhysicalType physical = PhysicalType::boolean;
  Codec codec = Codec::uncompressed;
  int64_t values = 0;  // nulls and empty lists count
  int64_t offset = 0;  // of its first page in the file
};

struct RowGroup {
  std::vector<ColumnChunk> columns;
  int64_t rows = 0;
};

struct FileMetadata {
  std::vector<SchemaElement> schema;  // the root first
  std::vector<RowGroup> row_groups;
  int64_t rows = 0;
};

struct PageHeader {
  PageKind kind = PageKind::data;
  int32_t compressed_bytes = 0, bytes = 0;
  std::optional<int32_t> crc;
  int32_t values = 0;
  Encoding encoding = Encoding::plain;
  // Data pages of version 1 name the encodings of their levels; those of version 2 give their lengths.
  Encoding definition_encoding = Encoding::rle, repetition_encoding = Encoding::rle;
  int32_t definition_bytes = 0, repetition_bytes = 0;
  bool compressed = true;
};

FileMetadata parse_file_metadata(std::string_view footer);
// Sets `used` to the length of the header, which starts at the first byte.
PageHeader parse_page_header(std::string_view bytes, size_t& used);

}  // namespace zeno::data::parquet
