// A model folder with a byte tokenizer and a ChatML template, files beside it, and a cache: what a dataset
// test needs. Ids: bytes 0..255, 256 <|endoftext|> (eos), 257 <|im_start|>, 258 <|im_end|>.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_dir.h"
#include "zeno/data/dataset/prepare.h"
#include "zeno/data/source.h"
#include "zeno/data/tokenizer.h"

namespace zeno::test {

constexpr int32_t kEos = 256, kStart = 257, kEnd = 258;

inline std::string chat_tokenizer_json() {
  auto json = nlohmann::ordered_json::parse(data::byte_tokenizer_json(257));
  for (const auto& [id, text] :
       std::map<int32_t, std::string>{{kStart, "<|im_start|>"}, {kEnd, "<|im_end|>"}}) {
    auto token = json["added_tokens"][0];
    token["id"] = id;
    token["content"] = text;
    json["added_tokens"].push_back(token);
    if (json["model"].contains("vocab")) json["model"]["vocab"][text] = id;
  }
  return json.dump();
}

constexpr const char* kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content + '<|im_end|>' }}{% "
    "endgeneration %}"
    "{% else %}{{ message.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}";

class DatasetFolder {
 public:
  explicit DatasetFolder(bool chat = true) {
    std::filesystem::create_directories(folder_.path() / "model");
    write("model/tokenizer.json", chat ? chat_tokenizer_json() : data::byte_tokenizer_json(257));
    if (chat) write("model/chat_template.jinja", kChatTemplate);
  }

  Path path() const { return folder_.path(); }
  Path caches() const { return folder_.path() / "cache" / "datasets"; }
  Path write(std::string_view name, std::string_view contents) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    return folder_.write(name, contents);
  }
  data::DatasetSpec spec(std::vector<Path> paths) const {
    return {.paths = std::move(paths),
            .model = folder_.path() / "model",
            .cache = folder_.path() / "cache",
            .vocab_size = 259};
  }
  // Builds and opens.
  data::TokenSource open(const data::DatasetSpec& spec) const {
    data::prepare_dataset(spec, {}, 2);
    return data::TokenSource::open(spec);
  }

 private:
  TempDir folder_;
};

// Documents of a source as text: learned stretches in brackets, <|im_start|> as "{", <|im_end|> as "}", eos
// as
// "$".
inline std::vector<std::string> marked_texts(const data::TokenSource& source) {
  std::vector<int32_t> ids(size_t(source.tokens()));
  std::vector<uint8_t> learned(ids.size());
  source.copy(0, ids);
  source.copy_learned(0, learned);
  std::vector<std::string> out;
  const auto starts = source.document_starts();
  for (size_t d = 0; d + 1 < starts.size(); ++d) {
    std::string text;
    bool open = false;
    for (auto i = size_t(starts[d]); i < size_t(starts[d + 1]); ++i) {
      if (bool(learned[i]) != open) text += std::exchange(open, !open) ? "]" : "[";
      const int32_t id = ids[i];
      text += id == kEos ? '$' : id == kStart ? '{' : id == kEnd ? '}' : char(id);
    }
    out.push_back(text + (open ? "]" : ""));
  }
  return out;
}

}  // namespace zeno::test
