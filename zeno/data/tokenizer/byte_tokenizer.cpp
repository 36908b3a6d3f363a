#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/data/tokenizer.h"
#include "zeno/data/tokenizer/byte_level.h"

namespace zeno::data {

std::string byte_tokenizer_json(int64_t vocab_size) {
  require(
      vocab_size >= 256, ErrorKind::usage,
      "[tokenizer] got a vocabulary of {}, expected at least 256 (one token per byte); choose a larger one",
      vocab_size);
  nlohmann::ordered_json vocab, added = nlohmann::ordered_json::array();
  for (size_t byte = 0; byte < 256; ++byte) vocab[tokenizer::byte_names()[byte]] = byte;
  int64_t id = 256;
  for (const char* content : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    if (id == vocab_size) break;
    added.push_back({{"id", id++},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  // use_regex and trim_offsets do not matter without merges, but Hugging Face wants to see them.
  const nlohmann::ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const nlohmann::ordered_json root = {{"version", "1.0"},
                                       {"truncation", nullptr},
                                       {"padding", nullptr},
                                       {"added_tokens", added},
                                       {"normalizer", nullptr},
                                       {"pre_tokenizer", byte_level},
                                       {"post_processor", nullptr},
                                       {"decoder", byte_level},
                                       {"model",
                                        {{"type", "BPE"},
                                         {"dropout", nullptr},
                                         {"unk_token", nullptr},
                                         {"continuing_subword_prefix", nullptr},
                                         {"end_of_word_suffix", nullptr},
                                         {"fuse_unk", false},
                                         {"byte_fallback", false},
                                         {"vocab", vocab},
                                         {"merges", nlohmann::ordered_json::array()}}}};
  return root.dump(1) + "\n";
}

}  // namespace zeno::data
