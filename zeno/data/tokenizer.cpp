#include "zeno/data/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/workers.h"
#include "zeno/data/tokenizer/folder.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/pipeline.h"

namespace zeno::data {

struct Tokenizer::State {
  State(const nlohmann::json& root, std::string_view where)
      : pipeline(root, where), special(tokenizer::guess_special_ids(pipeline)) {}
  tokenizer::Pipeline pipeline;
  tokenizer::SpecialIds special;
};

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Tokenizer Tokenizer::open(const Path& folder) {
  auto state = std::make_shared<State>(tokenizer::read_folder(folder), (folder / "tokenizer.json").string());
  state->special = tokenizer::read_special_ids(folder, state->pipeline);
  return Tokenizer(std::move(state));
}

bool Tokenizer::exists(const Path& folder) { return tokenizer::has_tokenizer(folder); }

Tokenizer Tokenizer::parse(std::string_view json, std::string_view where) try {
  check_json_limits(json, fmt::format("[tokenizer] {}", where), tokenizer::kJsonLimits);
  return Tokenizer(std::make_shared<State>(nlohmann::json::parse(json), where));
} catch (const nlohmann::json::exception& error) {
  fail(ErrorKind::data, "[tokenizer] {}: not a tokenizer.json: {}", where, error.what());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  state_->pipeline.encode(text, options, ids);
  return ids;
}

Encoding Tokenizer::encode_with_spans(std::string_view text, EncodeOptions options) const {
  Encoding encoding;
  for_each_token(text, options, [&](int32_t id, TextSpan span) {
    encoding.ids.push_back(id);
    encoding.spans.push_back(span);
  });
  return encoding;
}

void Tokenizer::for_each_token(std::string_view text, EncodeOptions options, const TakeToken& take) const {
  state_->pipeline.encode(text, options, take);
}

std::vector<std::vector<int32_t>> Tokenizer::encode_all(std::span<const std::string_view> texts,
                                                        EncodeOptions options) const {
  std::vector<std::vector<int32_t>> ids(texts.size());
  Workers workers(int(std::clamp<size_t>(texts.size(), 1, size_t(available_cores()))));
  workers.for_each(int64_t(texts.size()),
                   [&](int64_t i, int) { ids[size_t(i)] = encode(texts[size_t(i)], options); });
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  return state_->pipeline.decode(ids, skip_special);
}

std::optional<int32_t> Tokenizer::bos() const { return state_->special.bos; }
std::optional<int32_t> Tokenizer::eos() const { return state_->special.eos; }
std::optional<int32_t> Tokenizer::pad() const { return state_->special.pad; }
std::span<const int32_t> Tokenizer::stops() const { return state_->special.stops; }
std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  return state_->pipeline.id_of(token);
}
bool Tokenizer::is_special(int32_t id) const { return state_->pipeline.is_special(id); }
int64_t Tokenizer::vocab_size() const { return state_->pipeline.vocab_size(); }

}  // namespace zeno::data
