#include <filesystem>

#include "tests/faults/hostile_input.h"

namespace zeno::test {
namespace {

using nlohmann::json;

std::string plan_of(const HostileFolder& folder) {
  return "plan --ranks 2 --device cpu --model " + folder / "bad";
}
std::string train_of(const HostileFolder& folder) {
  return "train --data generated --device cpu --steps 1 --seq-len 16 --no-auto --out " + folder / "out" +
         " --model " + folder / "bad";
}

// A model folder one of whose files is replaced.
HostileInput with_file(const std::string& file, const std::string& what, std::set<int> exits,
                       const std::function<std::string()>& contents,
                       const std::function<std::string(const HostileFolder&)>& command) {
  return {file + ": " + what, std::move(exits), file, [=](const HostileFolder& folder) {
            folder.copy("model", "bad");
            folder.write("bad/" + file, contents());
            return command(folder);
          }};
}

// The same file with the text of one value replaced; parsers other than ours may have views of their own on
// it.
std::string with_value(const std::string& file, const std::string& key, const std::string& value) {
  json parsed = json::parse(file);
  parsed[key] = "@@";
  std::string text = parsed.dump();
  return text.replace(text.find("\"@@\""), 4, value);
}

HostileInputs whole_configs() {
  HostileInputs inputs;
  const auto add = [&](const std::string& what, std::function<std::string()> contents) {
    inputs.push_back(with_file("config.json", what, {3}, std::move(contents), plan_of));
  };
  add("empty", [] { return std::string(); });
  add("garbage", [] {
    return std::string(
        "\x7f"
        "ELF\0\0",
        6);
  });
  add("an array", [] { return std::string("[]"); });
  add("null", [] { return std::string("null"); });
  add("an empty object", [] { return std::string("{}"); });
  add("cut", [] { return std::string(R"({"model_type": "llama", "hidden_)"); });
  add("deep arrays", [] { return nested("[", "", "]", 100'000); });
  add("deep objects", [] { return nested("{\"a\":", "1", "}", 100'000); });
  add("a text of 50 MB", [] { return "{\"model_type\": \"" + repeated("llama", 10'000'000) + "\"}"; });
  add("a million keys", [] {
    std::string text = "{\"model_type\": \"llama\"";
    for (int i = 0; i < 1'000'000; ++i) text += ", \"k" + std::to_string(i) + "\": 1";
    return text + "}";
  });
  add("a key of a megabyte", [] {
    return "{\"model_type\": \"llama\", \"" + repeated("k", 1 << 20) + "\": 1, \"hidden_size\": []}";
  });
  add("an unknown type of a megabyte", [] { return "{\"model_type\": \"" + repeated("k", 1 << 20) + "\"}"; });
  add("two objects", [] { return std::string("{}{}"); });
  return inputs;
}

// What nobody reads is written again with the model.
HostileInputs ignored_keys() {
  const auto train_bf16 = [](const HostileFolder& folder) { return train_of(folder) + " --dtype bf16"; };
  const auto beside = [](const std::string& value) {
    return [value](const HostileFolder& folder) {
      return "{\"ignored\": " + value + "," + folder.read("model/config.json").substr(1);
    };
  };
  HostileInputs inputs;
  const auto add = [&](const std::string& what, int exit_code,
                       const std::function<std::string(const HostileFolder&)>& contents) {
    inputs.push_back({"config.json: " + what, {exit_code}, "config.json", [=](const HostileFolder& folder) {
                        folder.copy("model", "bad");
                        folder.write("bad/config.json", contents(folder));
                        return train_bf16(folder);
                      }});
  };
  add("an ignored key that is nested", 3, beside(nested("[", "", "]", 100'000)));
  add("an ignored key of 60 levels and 90,000 values", 0,
      beside(nested("[", "1" + repeated(",1", 90'000), "]", 60)));
  add("an ignored key of 3 MB of numbers", 3, beside(nested("[", "1" + repeated(",1", 1'500'000), "]", 60)));
  add("an ignored key of 100,000 NaN", 0, beside("[NaN" + repeated(",NaN", 90'000) + "]"));
  return inputs;
}

HostileInputs config_values() {
  const std::vector<std::string> keys{"model_type",
                                      "hidden_size",
                                      "intermediate_size",
                                      "num_hidden_layers",
                                      "num_attention_heads",
                                      "num_key_value_heads",
                                      "head_dim",
                                      "vocab_size",
                                      "rms_norm_eps",
                                      "rope_theta",
                                      "max_position_embeddings",
                                      "rope_scaling",
                                      "hidden_act",
                                      "torch_dtype",
                                      "eos_token_id"};
  HostileInputs inputs;
  for (const std::string& key : keys) {
    for (const std::string& value : hostile_values()) {
      inputs.push_back({"config.json: " + key + " = " + value.substr(0, 20),
                        {0, 3, 4},
                        "",
                        [key, value](const HostileFolder& folder) {
                          folder.copy("model", "bad");
                          folder.write("bad/config.json",
                                       with_value(folder.read("model/config.json"), key, value));
                          return plan_of(folder);
                        }});
    }
  }
  return inputs;
}

// Each within the bounds of its key.
HostileInputs absurd_sizes() {
  const std::vector<std::vector<std::pair<const char*, const char*>>> sizes{
      {{"num_hidden_layers", "16384"}},
      {{"vocab_size", "2147483647"}},
      {{"hidden_size", "16777216"},
       {"num_attention_heads", "65536"},
       {"num_key_value_heads", "65536"},
       {"head_dim", "256"}},
      {{"hidden_size", "16777216"},
       {"num_attention_heads", "65536"},
       {"num_key_value_heads", "65536"},
       {"head_dim", "256"},
       {"num_hidden_layers", "16384"},
       {"vocab_size", "2147483647"},
       {"intermediate_size", "67108864"}},
      {{"max_position_embeddings", "2147483647"}},
  };
  HostileInputs inputs;
  for (const auto& values : sizes) {
    for (const bool trains : {false, true}) {
      inputs.push_back(
          {std::string("config.json: absurd ") + values.back().first + (trains ? ", train" : ", plan"),
           {0, 3, 4, 5},
           "",
           [=](const HostileFolder& folder) {
             folder.copy("model", "bad");
             std::string text = folder.read("model/config.json");
             for (const auto& [key, value] : values) text = with_value(text, key, value);
             folder.write("bad/config.json", text);
             std::filesystem::remove(folder / "bad/model.safetensors");
             return trains ? train_of(folder) : plan_of(folder);
           }});
    }
  }
  return inputs;
}

HostileInputs other_files() {
  HostileInputs inputs;
  for (const char* file : {"generation_config.json", "model.safetensors.index.json"}) {
    const std::set<int> exits{0, 3};
    const auto add = [&](const std::string& what, std::function<std::string()> contents) {
      inputs.push_back(with_file(file, what, exits, std::move(contents), train_of));
      if (std::string(file) == "model.safetensors.index.json") {
        const auto make = inputs.back().make;
        inputs.back().make = [make](const HostileFolder& folder) {  // so that the index is read
          const std::string command = make(folder);
          std::filesystem::rename(folder / "bad/model.safetensors",
                                  folder / "bad/model-00001-of-00001.safetensors");
          return command;
        };
      }
    };
    add("garbage", [] { return std::string("garbage"); });
    add("deep arrays", [] { return nested("[", "", "]", 100'000); });
    add("an array", [] { return std::string("[]"); });
    add("files elsewhere",
        [] { return std::string(R"({"weight_map": {"model.norm.weight": "../../../etc/passwd"}})"); });
    add("a file that is not there",
        [] { return std::string(R"({"weight_map": {"model.norm.weight": "none.safetensors"}})"); });
    add("a name of a megabyte",
        [] { return R"({"weight_map": {"a": ")" + repeated("k", 1 << 20) + R"(.safetensors"}})"; });
    add("a million names", [] {
      std::string text = R"({"weight_map": {"a": "b.safetensors")";
      for (int i = 0; i < 1'000'000; ++i) text += ", \"k" + std::to_string(i) + "\": \"b.safetensors\"";
      return text + "}}";
    });
  }
  return inputs;
}

// 8 bytes of length, the header, and data.
std::string safetensors(const std::string& header, size_t data = 64) {
  const uint64_t bytes = header.size();
  return std::string(reinterpret_cast<const char*>(&bytes), 8) + header + std::string(data, '\0');
}
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w": {"dtype": )" + dtype + R"(, "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}}";
}
std::string length_only(uint64_t bytes) { return std::string(reinterpret_cast<const char*>(&bytes), 8); }

std::vector<std::pair<std::string, std::function<std::string()>>> broken_weights() {
  return {
      {"empty", [] { return std::string(); }},
      {"seven bytes", [] { return std::string(7, '\0'); }},
      {"no header", [] { return length_only(0); }},
      {"a header longer than the file", [] { return length_only(1000) + "{}"; }},
      {"a header of 2^63 bytes", [] { return length_only(uint64_t(1) << 63) + "{}"; }},
      {"a header of 99 MB of blanks", [] { return safetensors(repeated(" ", 99'000'000)); }},
      {"a header of garbage", [] { return safetensors("garbage"); }},
      {"a header that is an array", [] { return safetensors("[]"); }},
      {"deep arrays", [] { return safetensors(nested("[", "", "]", 100'000)); }},
      {"deep objects", [] { return safetensors(nested("{\"a\":", "1", "}", 100'000)); }},
      {"deep metadata",
       [] { return safetensors("{\"__metadata__\":" + nested("{\"a\":", "1", "}", 100'000) + "}"); }},
      {"an unknown type", [] { return safetensors(tensor("\"F128\"", "[4]", "[0, 64]")); }},
      {"a type of a megabyte",
       [] { return safetensors(tensor("\"" + repeated("F", 1 << 20) + "\"", "[4]", "[0, 64]")); }},
      {"a type that is a number", [] { return safetensors(tensor("32", "[4]", "[0, 16]")); }},
      {"a negative shape", [] { return safetensors(tensor("\"F32\"", "[-4]", "[0, 16]")); }},
      {"a shape of fractions", [] { return safetensors(tensor("\"F32\"", "[1.5]", "[0, 16]")); }},
      {"a shape that overflows",
       [] { return safetensors(tensor("\"F32\"", "[4294967296, 4294967296, 4]", "[0, 64]")); }},
      {"a shape of 100,000 sides",
       [] { return safetensors(tensor("\"F32\"", "[1" + repeated(",1", 100'000) + "]", "[0, 4]")); }},
      {"a shape that is an object", [] { return safetensors(tensor("\"F32\"", "{}", "[0, 4]")); }},
      {"a place behind the end", [] { return safetensors(tensor("\"F32\"", "[16]", "[64, 128]")); }},
      {"a place that ends before it begins", [] { return safetensors(tensor("\"F32\"", "[4]", "[16, 0]")); }},
      {"a place of another size", [] { return safetensors(tensor("\"F32\"", "[4]", "[0, 12]")); }},
      {"a negative place", [] { return safetensors(tensor("\"F32\"", "[4]", "[-16, 0]")); }},
      {"a place of one number", [] { return safetensors(tensor("\"F32\"", "[4]", "[0]")); }},
      {"no place", [] { return safetensors(R"({"w": {"dtype": "F32", "shape": [4]}})"); }},
      {"a tensor twice",
       [] {
         return safetensors(
             R"({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "w": {"dtype": "F32", "shape": [4], "data_offsets": [16, 32]}})");
       }},
      {"tensors over each other",
       [] {
         return safetensors(
             R"({"v": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "w": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}})");
       }},
      {"a name of a megabyte",
       [] {
         return safetensors("{\"" + repeated("n", 1 << 20) +
                            R"(": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}})");
       }},
      {"200,000 tensors",
       [] {
         std::string header = "{";
         for (int i = 0; i < 200'000; ++i)
           header += (i > 0 ? ", \"t" : "\"t") + std::to_string(i) +
                     R"(": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]})";
         return safetensors(header + "}", 0);
       }},
  };
}

}  // namespace

HostileInputs hostile_configs() {
  HostileInputs inputs;
  for (const HostileInputs& group :
       {whole_configs(), ignored_keys(), config_values(), absurd_sizes(), other_files()})
    inputs.insert(inputs.end(), group.begin(), group.end());
  return inputs;
}

HostileInputs hostile_weights() {
  HostileInputs inputs;
  for (const auto& [what, contents] : broken_weights()) {
    const auto make = contents;
    inputs.push_back(with_file("model.safetensors", what, {3}, make, train_of));
    inputs.back().mentions = "bad";
    inputs.push_back({"inspect model.safetensors: " + what,
                      {0, 3},
                      "bad.safetensors",
                      [make](const HostileFolder& folder) {
                        folder.write("bad.safetensors", make());
                        return "inspect " + folder / "bad.safetensors";
                      }});
  }
  return inputs;
}

}  // namespace zeno::test
