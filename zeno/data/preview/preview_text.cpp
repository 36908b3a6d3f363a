#include "zeno/data/preview/preview_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/base/quantity.h"
#include "zeno/base/utf8.h"

namespace zeno::data {
namespace {

constexpr std::string_view kBold = "\x1b[1m", kDim = "\x1b[2m", kGreen = "\x1b[32m", kYellow = "\x1b[33m",
                           kReset = "\x1b[0m";
constexpr int64_t kShortPiece = 60;  // characters that are shown of any piece

std::string painted(std::string_view text, std::string_view code, bool colour) {
  return colour ? fmt::format("{}{}{}", code, text, kReset) : std::string(text);
}

int64_t characters(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += decode_char(text, at).bytes) ++count;
  return count;
}

// Bytes of the first `count` characters.
size_t bytes_of(std::string_view text, int64_t count) {
  size_t at = 0;
  for (; count > 0 && at < text.size(); --count) at += decode_char(text, at).bytes;
  return at;
}

// Text as a terminal may get it: nothing in it can move the cursor or change colours. A line end is shown and
// taken; colours begin anew on each line, which pagers ask for.
std::string shown(std::string_view text, std::string_view code, bool colour) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_char(text, at);
    at += c.bytes;
    if (c.code == '\n') {
      out += "⏎";
      out += colour ? fmt::format("{}\n{}", kReset, code) : "\n";
    } else if (c.code == '\t') {
      out += "→\t";
    } else if (c.code < 0x20) {
      append_utf8(out, 0x2400 + c.code);  // ␀ … ␟
    } else if (c.code == 0x7f) {
      out += "␡";
    } else if (c.code >= 0x80 && c.code < 0xa0) {
      append_utf8(out, kReplacementCharacter);
    } else {
      append_utf8(out, c.code);
    }
  }
  return out;
}

std::string marked(std::string_view text, bool trained, bool colour) {
  const std::string_view code = trained ? kGreen : kDim;
  const std::string body = shown(text, code, colour);
  if (colour) return fmt::format("{}{}{}", code, body, kReset);
  return trained ? fmt::format("⟦{}⟧", body) : body;
}

// The most characters of a piece such that all pieces together stay within a limit.
int64_t piece_limit(const std::vector<int64_t>& lengths, int64_t limit) {
  std::vector<int64_t> sorted = lengths;
  std::ranges::sort(sorted);
  int64_t left = limit;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const int64_t share = left / int64_t(sorted.size() - i);
    if (sorted[i] > share) return std::max(share, kShortPiece);
    left -= sorted[i];
  }
  return limit;
}

std::string piece_text(const PreviewPiece& piece, int64_t length, int64_t limit, bool colour) {
  if (length <= limit) return marked(piece.text, piece.trained, colour);
  const int64_t front = limit * 2 / 3, back = limit - front;
  const std::string_view text = piece.text;
  const size_t begin = bytes_of(text, front), end = bytes_of(text, length - back);
  const std::string note = fmt::format("[… {} characters …]", format_count(length - limit));
  return marked(text.substr(0, begin), piece.trained, colour) + painted(note, kYellow, colour) +
         marked(text.substr(end), piece.trained, colour);
}

std::string body_text(const PreviewSample& sample, PreviewStyle style) {
  std::vector<int64_t> lengths;
  for (const PreviewPiece& piece : sample.pieces) lengths.push_back(characters(piece.text));
  const int64_t whole = INT64_MAX;
  const int64_t limit = style.max_chars > 0 ? piece_limit(lengths, style.max_chars) : whole;
  std::string out;
  int64_t used = 0;
  for (size_t p = 0; p < sample.pieces.size(); ++p) {
    // A conversation of very many turns.
    if (style.max_chars > 0 && used > 2 * style.max_chars) {
      const std::string note = fmt::format("[… {} more pieces …]", sample.pieces.size() - p);
      return out + painted(note, kYellow, style.colour);
    }
    out += piece_text(sample.pieces[p], lengths[p], limit, style.colour);
    used += std::min(lengths[p], limit);
  }
  return out;
}

std::string cut_note(int64_t tokens, const PreviewSample& sample, bool colour) {
  if (tokens == 0) return "";
  const std::string_view what = sample.rest_is_trained ? "in another sample" : "cut off";
  return painted(fmt::format("[✂ {} tokens {}]", format_count(tokens), what), kYellow, colour);
}

std::string file_line(const FileCounts& file, const std::string& name) {
  std::string line =
      fmt::format("  {}: {} samples, {} tokens, {} trained ({}), longest {}", name,
                  format_count(file.samples), format_count(file.tokens), format_count(file.trained),
                  format_percent(file.trained_share()), format_count(file.longest));
  if (file.cut > 0) line += fmt::format(", {} cut", format_count(file.cut));
  if (file.left_out > 0) line += fmt::format(", {} left out", format_count(file.left_out));
  return line + "\n";
}

}  // namespace

std::string style_note(PreviewStyle style) {
  return style.colour
             ? fmt::format("trained text is {}green{}, the rest {}dim{}", kGreen, kReset, kDim, kReset)
             : "trained text is in ⟦ ⟧";
}

std::string sample_text(const PreviewSample& sample, PreviewStyle style) {
  const std::string head = fmt::format("{}: {} tokens, {} trained", sample.origin,
                                       format_count(sample.tokens), format_count(sample.trained));
  std::string out = painted(shown(head, kBold, style.colour), kBold, style.colour) + "\n";
  out += cut_note(sample.first_token, sample, style.colour);
  out += body_text(sample, style);
  out += cut_note(sample.missing_behind(), sample, style.colour);
  return out.ends_with('\n') ? out : out + "\n";
}

std::string counts_text(const PreviewCounts& counts) {
  const FileCounts& total = counts.total;
  const LengthCounts& lengths = counts.lengths;
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("{:<9} {}\n", name, shown(text, "", false));
  };
  line("samples", fmt::format("{} with {} tokens, {} trained ({})", format_count(total.samples),
                              format_count(total.tokens), format_count(total.trained),
                              format_percent(total.trained_share())));
  line("lengths",
       fmt::format("median {}, 90 % up to {}, 99 % up to {}, longest {} ({})", format_count(lengths.median),
                   format_count(lengths.p90), format_count(lengths.p99), format_count(lengths.longest),
                   lengths.longest_origin));
  if (total.cut > 0)
    line("cut", fmt::format("{} of {} samples, longer than {} tokens; {} tokens lost",
                            format_count(total.cut), format_count(total.samples),
                            format_count(counts.packing.seq_len), format_count(total.cut_tokens)));
  for (const std::string& text : left_out_lines(counts)) line("left out", text);
  line("packing", counts.packing.text());
  if (!counts.build.layout.empty()) line("layout", counts.build.layout);
  for (const std::string& text : unused_lines(counts)) line("unused", text);
  for (const std::string& text : remark_lines(counts)) line("template", text);
  if (counts.files.size() < 2) return out;
  out += "by file\n";
  for (const FileCounts& file : counts.files) out += file_line(file, shown(file.path, "", false));
  return out;
}

}  // namespace zeno::data
