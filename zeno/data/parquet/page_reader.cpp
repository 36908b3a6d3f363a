#include "zeno/data/parquet/page_reader.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/data/parquet/bits.h"
#include "zeno/data/parquet/decoder.h"

namespace zeno::data::parquet {
namespace {

constexpr size_t kMaxHeader = size_t(16) << 20;  // statistics can hold whole texts
constexpr uint64_t kMagicBytes = 4;

std::string_view take_bytes(std::string_view& bytes, size_t size) {
  require(size <= bytes.size(), ErrorKind::data, "the levels of a page end early");
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

const char* name_of(Codec codec) {
  switch (codec) {
    case Codec::lzo:
      return "lzo";
    case Codec::brotli:
      return "brotli";
    default:
      return "lz4";
  }
}

}  // namespace

void PageDecompressor::decompress(Codec codec, std::string_view in, std::span<char> out) {
  switch (codec) {
    case Codec::uncompressed:
      require(in.size() == out.size(), ErrorKind::data, "a page has {} bytes, expected {}", in.size(),
              out.size());
      std::ranges::copy(in, out.begin());
      return;
    case Codec::snappy:
      return decompress_snappy(in, out);
    case Codec::gzip:
      if (!gzip_) gzip_ = make_gzip_decompressor();
      return decompress_all(*gzip_, in, out);
    case Codec::zstd:
      if (!zstd_) zstd_ = make_zstd_decompressor();
      return decompress_all(*zstd_, in, out);
    case Codec::lzo:
    case Codec::brotli:
    case Codec::lz4:
    case Codec::lz4_raw:
      fail(ErrorKind::data, "compression {} is not supported; write the file with snappy, gzip or zstd",
           name_of(codec));
  }
}

std::span<char> PageDecompressor::compressed(size_t bytes) {
  if (compressed_.size() < bytes) compressed_.resize(bytes);
  return std::span(compressed_).first(bytes);
}

PageReader::PageReader(const File& file, uint64_t end, const ColumnChunk& chunk, const Column& column,
                       PageDecompressor& shared)
    : input_(file, std::min(uint64_t(chunk.offset), end), end),
      codec_(chunk.codec),
      max_repetition_(column.max_repetition),
      max_definition_(column.max_definition),
      shared_(&shared),
      buffer_(shared.budget) {
  require(chunk.offset >= int64_t(kMagicBytes) && uint64_t(chunk.offset) < end, ErrorKind::data,
          "its pages begin at byte {} of {}", chunk.offset, end);
}

// The length of a header is known only when it has been read: one that does not end in what is in sight is
// read again with twice as much.
PageHeader PageReader::next_header() {
  for (size_t size = 512;; size *= 2) {
    const std::string_view bytes = input_.peek(size);
    try {
      size_t used = 0;
      const PageHeader header = parse_page_header(bytes, used);
      input_.skip(used);
      return header;
    } catch (const Error&) {
      if (bytes.size() == input_.left() || bytes.size() >= kMaxHeader) throw;
      size = std::max(size, bytes.size());
    }
  }
}

// Reads the page's bytes into the buffer, decompressed.
void PageReader::load(const PageHeader& header) {
  const auto stored = size_t(header.compressed_bytes), size = size_t(header.bytes);
  const bool dictionary = header.kind == PageKind::dictionary;
  buffer_.resize(size, dictionary ? uint64_t(header.values) * sizeof(Value) : 0);
  const std::span<char> raw = shared_->compressed(stored);
  input_.read(raw.data(), stored);
  const std::string_view in(raw.data(), stored);
  require(!header.crc || uint32_t(*header.crc) == crc32_of(in), ErrorKind::data,
          "a page of {} bytes does not match its checksum; the file is damaged", stored);
  // Pages of version 2 keep their levels uncompressed in front.
  size_t levels = 0;
  if (header.kind == PageKind::data_v2) {
    levels = size_t(header.repetition_bytes) + size_t(header.definition_bytes);
    require(levels <= stored && levels <= size, ErrorKind::data, "a page of {} bytes has {} bytes of levels",
            size, levels);
    std::copy_n(in.data(), levels, buffer_.data());
  }
  const std::span<char> out(buffer_.data() + levels, size - levels);
  if (out.empty() && stored == levels) return;
  shared_->decompress(header.compressed ? codec_ : Codec::uncompressed, in.substr(levels), out);
}

void PageReader::split_levels(Page& page) const {
  std::string_view rest = buffer_.view();
  if (page.header.kind == PageKind::data_v2) {
    page.repetition_levels = take_bytes(rest, size_t(page.header.repetition_bytes));
    page.definition_levels = take_bytes(rest, size_t(page.header.definition_bytes));
  } else if (page.header.kind == PageKind::data) {
    const auto levels = [&](Encoding encoding) {
      require(encoding == Encoding::rle, ErrorKind::data, "levels in encoding {} are not supported",
              int(encoding));
      return take_bytes(rest, load_little_endian(take_bytes(rest, 4)));
    };
    if (max_repetition_ > 0) page.repetition_levels = levels(page.header.repetition_encoding);
    if (max_definition_ > 0) page.definition_levels = levels(page.header.definition_encoding);
  }
  page.values = rest;
}

Page PageReader::next() {
  while (true) {
    require(input_.left() > 0, ErrorKind::data, "its pages end early");
    Page page{.header = next_header()};
    require(uint64_t(page.header.compressed_bytes) <= input_.left(), ErrorKind::data,
            "a page of {} bytes ends after the last column", page.header.compressed_bytes);
    if (page.header.kind == PageKind::index) {
      input_.skip(size_t(page.header.compressed_bytes));
      continue;
    }
    load(page.header);
    split_levels(page);
    return page;
  }
}

}  // namespace zeno::data::parquet
