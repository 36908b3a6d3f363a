#include "zeno/data/preview/preview_json.h"

#include <nlohmann/json.hpp>

namespace zeno::data {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json counts_of(const FileCounts& file) {
  return {{"records", file.records},        {"left_out", file.left_out},
          {"samples", file.samples},        {"tokens", file.tokens},
          {"trained_tokens", file.trained}, {"trained_share", file.trained_share()},
          {"truncated", file.cut},          {"truncated_tokens", file.cut_tokens},
          {"longest", file.longest}};
}

std::string_view name_of(Packing packing) {
  switch (packing) {
    case Packing::automatic:
      return "auto";
    case Packing::best_fit:
      return "best_fit";
    case Packing::none:
      return "none";
    case Packing::wrapped:
      return "wrapped";
  }
  return "";
}

Json lengths_of(const LengthCounts& lengths) {
  Json histogram = Json::array();
  for (size_t i = 0; i < lengths.histogram.size(); ++i)
    histogram.push_back({{"up_to", int64_t(1) << i}, {"records", lengths.histogram[i]}});
  return {{"median", lengths.median},
          {"p90", lengths.p90},
          {"p99", lengths.p99},
          {"longest", lengths.longest},
          {"longest_origin", lengths.longest_origin},
          {"histogram", histogram}};
}

Json packing_of(const PackReport& report) {
  return {{"packing", name_of(report.packing)},
          {"seq_len", report.seq_len},
          {"sequences", report.sequences},
          {"fill", report.fill()}};
}

}  // namespace

std::string sample_json(const PreviewSample& sample) {
  Json pieces = Json::array();
  for (const PreviewPiece& piece : sample.pieces)
    pieces.push_back({{"text", piece.text}, {"trained", piece.trained}});
  return dump({{"origin", sample.origin},
               {"tokens", sample.tokens},
               {"trained_tokens", sample.trained},
               {"first_token", sample.first_token},
               {"record_tokens", sample.record_tokens},
               {"pieces", pieces}});
}

std::string counts_json(const PreviewCounts& counts) {
  Json json = counts_of(counts.total);
  json["left_out_by_reason"] = {{"bad", counts.build.bad},
                                {"nothing_to_train_on", counts.build.nothing_to_learn},
                                {"too_long", counts.packing.dropped},
                                {"nothing_left_after_cutting", counts.packing.nothing_to_learn}};
  json["unused_fields"] = counts.build.unused;
  json["template_remarks"] = counts.build.remarks;
  json["layout"] = counts.build.layout;
  json["lengths"] = lengths_of(counts.lengths);
  json["packing"] = packing_of(counts.packing);
  json["files"] = Json::array();
  for (const FileCounts& file : counts.files) {
    Json row{{"path", file.path}};
    row.update(counts_of(file));
    json["files"].push_back(row);
  }
  return dump(json);
}

}  // namespace zeno::data
