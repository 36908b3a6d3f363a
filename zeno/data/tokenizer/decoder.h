// Decoders of tokenizer.json: texts of tokens → the text they represent. Immutable; safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace zeno::data::tokenizer {

class JsonNode;

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

std::unique_ptr<const Decoder> make_decoder(const JsonNode& node);

}  // namespace zeno::data::tokenizer
