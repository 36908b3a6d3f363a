// Flags, DeepSpeed configs and checkpoints.
#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <tuple>

#include "tests/faults/hostile_input.h"
#include "zeno/checkpoint/manifest.h"

namespace zeno::test {
namespace {

using nlohmann::json;

// `more` comes first: a flag may be among those that stand here.
std::string train(const HostileFolder& folder, const std::string& more) {
  return "train " + more + " --data generated --device cpu --seq-len 16 --no-auto --model " +
         folder / "model" + " --out " + folder / "out";
}

HostileInputs odd_flags() {
  HostileInputs inputs;
  const auto add = [&](const std::string& name, std::set<int> exits, const std::string& flags) {
    inputs.push_back(
        {name, std::move(exits), "", [flags](const HostileFolder& folder) { return train(folder, flags); }});
  };
  add("an unknown flag of a megabyte", {2}, "--" + repeated("x", 100'000));
  add("stage 1e9", {2}, "--steps 1 --stage 1e9");
  add("no config", {0}, "--steps 1 --config ''");
  add("a config of base64 of nothing", {2, 3}, "--steps 1 --config QQ==");
  add("a million ranks", {2, 4}, "--steps 1 --ranks 1000000");
  add("a micro-batch of 2^40", {2, 4}, "--steps 1 --micro-batch 1099511627776");
  add("2^40 micro-batches", {2, 3, 4}, "--steps 1 --grad-accum 1099511627776");
  add("2^30 micro-batches", {2, 3, 4}, "--steps 1 --grad-accum 1073741824");
  add("adapters of 2^40", {2}, "--steps 1 --lora-rank 1099511627776");
  add("a name of LoRA targets of 100 KB", {2},
      "--steps 1 --lora-rank 2 --lora-targets " + repeated("q", 100'000));
  inputs.push_back(
      {"sequences of 2^31", {2}, "--seq-len", [](const HostileFolder& folder) {
         return "train --steps 1 --data generated --device cpu --no-auto --seq-len 2147483647 --model " +
                folder / "model" + " --out " + folder / "out";
       }});
  return inputs;
}

HostileInputs numbers_of_flags() {
  HostileInputs inputs;
  for (const char* flag : {"--lr", "--warmup", "--micro-batch", "--ranks", "--host-mem", "--device-mem",
                           "--save-every", "--deadline", "--clip"}) {
    for (const char* value :
         {"-1", "1e30", "1e400", "nan", "inf", "0x10", "9223372036854775808", "1.5e", "1e30TB", ""}) {
      // These two have no upper bound. Without a value a flag takes the next word.
      const bool any_size = std::set<std::string>{"--lr", "--clip"}.contains(flag);
      const bool large = std::set<std::string>{"1e30", "9223372036854775808"}.contains(value);
      inputs.push_back({std::string(flag) + " " + value,
                        {any_size && large ? 0 : 2},
                        std::string(value).empty() ? "" : flag,
                        [flag, value](const HostileFolder& folder) {
                          return train(folder, std::string("--steps 1 ") + flag + "='" + value + "'");
                        }});
    }
  }
  for (const char* flag : {"--host-mem", "--device-mem"}) {
    for (const char* value : {"1e300B", "1e19B", "2EiB", "1e-30TB", "0.5B"}) {
      inputs.push_back({std::string("plan ") + flag + " " + value, {2}, flag, [=](const HostileFolder&) {
                          return std::string("plan --params 7e9 --ranks 8 ") + flag + " " + value;
                        }});
    }
  }
  for (const auto& [words, mentions] : std::vector<std::pair<std::string, std::string>>{
           {"--params 1e30 --ranks 8", "--params"},
           {"--params -1 --ranks 8", "--params"},
           {"--params 7e9 --ranks 1000000000", "--ranks"},
           {"--params 7e9 --ranks 8 --device-mem 1e30TB", "--device-mem"},
           {"--params nan --ranks 8", "--params"},
           {"--params 7e9 --ranks 8 --host-mem -5GB", "--host-mem"},
           {"--params 7e9 --machine h100-8x2000000000", "h100-8x2000000000"}}) {
    inputs.push_back(
        {"plan " + words, {2}, mentions, [words](const HostileFolder&) { return "plan " + words; }});
  }
  inputs.push_back({"plan for 65536 ranks", {0}, "", [](const HostileFolder&) {
                      return std::string("plan --params 7e9 --ranks 65536");
                    }});
  inputs.push_back(
      {"--template-extra that is nested", {2}, "--template-extra", [](const HostileFolder& folder) {
         folder.write("bad.jsonl", R"({"text": "a"})");
         return "data --chat-template chatml --model " + folder / "model" + " --data " +
                folder / "bad.jsonl" + " --template-extra '" + nested("[", "", "]", 40'000) + "'";
       }});
  for (const auto& [words, exit_code] : std::initializer_list<std::pair<const char*, int>>{
           {"--hidden 16777216 --layers 16384 --heads 65536", 2},
           {"--hidden 32 --layers 16384 --heads 4", 2},
           {"--hidden 33 --layers 2 --heads 4", 2},
           {"--hidden 32 --layers 2 --heads 4 --vocab 2147483648", 2},
           {"--hidden -1 --layers 2 --heads 4", 2},
           {"--hidden 1e30 --layers 2 --heads 4", 2},
           {"--hidden 2048 --layers 2 --heads 16 --vocab 2147483647", 5}}) {  // 35 TB
    inputs.push_back(
        {std::string("init ") + words, {exit_code}, "", [words = words](const HostileFolder& folder) {
           return std::string("init --arch llama ") + words + " --out " + folder / "made";
         }});
  }
  return inputs;
}

// A machine to plan for, with one of its fields replaced or another beside them.
HostileInputs machine_files() {
  const auto machine = [](const std::string& key, const std::string& value) {
    json fields{{"name", "x"}, {"device", "cpu"}, {"nodes", 1}, {"node_ranks", 1}};
    for (const char* name :
         {"matmul_16bit_flops", "matmul_fp32_flops", "matmul_fp8_flops", "attention_flops",
          "memory_bytes_per_s", "packed_elements_per_s", "launch_s", "memory_bytes", "host_memory_bytes",
          "host_updates_per_s", "host_link_bytes_per_s", "disk_read_bytes_per_s", "disk_write_bytes_per_s",
          "disk_bytes", "inside_bytes_per_s", "inside_latency_s", "between_bytes_per_s", "between_latency_s"})
      fields[name] = 1e9;
    fields.erase(key);
    return "{\"" + key + "\": " + value + "," + fields.dump().substr(1);
  };
  HostileInputs inputs;
  const auto add = [&](const std::string& what, std::function<std::string()> contents) {
    inputs.push_back({"machine file: " + what, {3}, "bad.json", [contents](const HostileFolder& folder) {
                        folder.write("bad.json", contents());
                        return "plan --params 7e9 --machine " + folder / "bad.json";
                      }});
  };
  add("empty", [] { return std::string(); });
  add("an array", [] { return std::string("[]"); });
  add("deep arrays", [=] { return machine("nodes", nested("[", "", "]", 100'000)); });
  add("deep arrays of nobody", [=] { return machine("more", nested("[", "", "]", 100'000)); });
  add("an unknown key of a megabyte", [=] { return machine(repeated("k", 1'000'000), "1"); });
  add("a device of a megabyte", [=] { return machine("device", '"' + repeated("k", 1'000'000) + '"'); });
  add("10 MB", [=] { return machine("name", '"' + repeated("k", 10'000'000) + '"'); });
  for (const char* key : {"memory_bytes", "host_memory_bytes", "nodes", "node_ranks", "attention_flops"}) {
    for (const char* value : {"1e300", "-1", "1e999", "[]", "null"})
      add(std::string(key) + " = " + value, [=] { return machine(key, value); });
  }
  add("a million nodes of a million ranks", [=] {
    json fields = json::parse(machine("nodes", "1000000"));
    fields["node_ranks"] = 1'000'000;
    return fields.dump();
  });
  return inputs;
}

HostileInput with_config(const std::string& what, std::set<int> exits,
                         const std::function<std::string()>& contents) {
  return {"DeepSpeed config: " + what, std::move(exits), "", [contents](const HostileFolder& folder) {
            folder.write("bad.json", contents());
            return train(folder, "--steps 1 --config " + folder / "bad.json");
          }};
}

// What zeno made of one step, with the manifest (or a file) replaced.
HostileInput with_checkpoint(const std::string& what, std::set<int> exits,
                             const std::function<void(const HostileFolder&, const std::string& step)>& spoil,
                             bool inspects) {
  return {(inspects ? "inspect a checkpoint: " : "resume a checkpoint: ") + what, std::move(exits), "",
          [=](const HostileFolder& folder) {
            folder.copy("trained", "out");
            const std::string step = "out/checkpoints/step-00000001";
            spoil(folder, step);
            return inspects ? "inspect " + folder / step
                            : train(folder, "--steps 2 --resume auto --save-every 1");
          }};
}

// The manifest with another "run", and the checksum that it then needs.
std::function<std::string(const std::string&)> with_run(std::function<std::string()> run) {
  return [run](const std::string& good) {
    const size_t digits = std::string_view("{\"checksum\":\"").size(), head = digits + 16;
    const size_t at = good.find("\"run\":") + 6;
    const std::string rest = good.substr(head, at - head) + run() + "}";
    const uint64_t sum = checkpoint::checksum_of(std::as_bytes(std::span(rest)));
    return good.substr(0, digits) + fmt::format("{:016x}", sum) + rest + "\n";
  };
}

std::vector<std::pair<std::string, std::function<std::string(const std::string&)>>> spoilt_manifests() {
  const auto replaced = [](const std::string& from, const std::string& to) {
    return [=](const std::string& good) {
      std::string text = good;
      const size_t at = text.find(from);
      return at == std::string::npos ? "" : text.replace(at, from.size(), to);
    };
  };
  return {
      {"empty", [](const std::string&) { return std::string(); }},
      {"cut", [](const std::string& good) { return good.substr(0, good.size() / 2); }},
      {"garbage", [](const std::string&) { return std::string("garbage"); }},
      {"an array", [](const std::string&) { return std::string("[]"); }},
      {"deep arrays", [](const std::string&) { return nested("[", "", "]", 100'000); }},
      {"deep objects", [](const std::string&) { return nested("{\"version\":", "1", "}", 100'000); }},
      {"a wrong sum", replaced("\"checksum\":\"", "\"checksum\":\"0")},
      {"a newer version", replaced("\"version\":1", "\"version\":2")},
      {"a version of 2^70", replaced("\"version\":1", "\"version\":1180591620717411303424")},
      {"a version of text", replaced("\"version\":1", "\"version\":\"one\"")},
      {"50 MB of blanks", [](const std::string& good) { return repeated(" ", 50'000'000) + good; }},
      {"NULs behind it", [](const std::string& good) { return good + std::string(1000, '\0'); }},
  };
}

// What a run wrote about itself: only a run that resumes reads it, unless it is too large for anybody.
std::vector<std::tuple<std::string, bool, std::function<std::string()>>> spoilt_runs() {
  return {
      {"nothing", false, [] { return std::string("{}"); }},
      {"1 MB of zeros", false, [] { return "{\"loop\":[0" + repeated(",0", 500'000) + "]}"; }},
      {"60 MB of texts", true, [] { return "{\"loop\":[\"\"" + repeated(",\"\"", 20'000'000) + "]}"; }},
      {"deep arrays", true, [] { return "{\"loop\":" + nested("[", "", "]", 100'000) + "}"; }},
      {"a text of a megabyte", false, [] { return "{\"loop\":\"" + repeated("x", 1'000'000) + "\"}"; }},
  };
}

}  // namespace

HostileInputs hostile_flags() {
  HostileInputs inputs = odd_flags();
  for (const HostileInputs& group : {numbers_of_flags(), machine_files()})
    inputs.insert(inputs.end(), group.begin(), group.end());
  return inputs;
}

HostileInputs hostile_deepspeed_configs() {
  HostileInputs inputs{
      with_config("empty", {2}, [] { return std::string(); }),
      with_config("garbage", {2},
                  [] {
                    return std::string(
                        "\x7f"
                        "ELF\0",
                        5);
                  }),
      with_config("an array", {2}, [] { return std::string("[]"); }),
      with_config("deep arrays", {2},
                  [] { return "{\"optimizer\": " + nested("[", "", "]", 100'000) + "}"; }),
      with_config("deep objects", {2}, [] { return nested("{\"zero_optimization\":", "1", "}", 100'000); }),
      with_config("1 MB of zeros", {2}, [] { return "{\"a\": [0" + repeated(",0", 500'000) + "]}"; }),
      with_config("16 MB of zeros", {2}, [] { return "{\"a\": [0" + repeated(",0", 8'000'000) + "]}"; }),
      with_config("20 MB", {2}, [] { return "{\"steps_per_print\": 1" + repeated(" ", 20'000'000) + "}"; }),
      with_config("a comment without end", {2}, [] { return "{ /* " + repeated("x", 1'000'000); }),
      with_config("a key of 500 KB twice", {2},
                  [] {
                    const std::string key = '"' + repeated("k", 500'000) + '"';
                    return "{" + key + ": 1, " + key + ": 2}";
                  }),
      with_config("200,000 unknown keys", {2},
                  [] {
                    std::string text = "{\"steps_per_print\": 1";
                    for (int i = 0; i < 200'000; ++i) text += ", \"k" + std::to_string(i) + "\": 1";
                    return text + "}";
                  }),
      with_config("an unknown key of a megabyte", {2},
                  [] { return "{\"" + repeated("k", 1 << 20) + "\": 1}"; }),
      with_config("an optimizer of a megabyte", {2},
                  [] { return R"({"optimizer": {"type": ")" + repeated("k", 1 << 20) + "\"}}"; }),
      with_config("a key twice", {2},
                  [] { return std::string(R"({"gradient_clipping": 1, "gradient_clipping": 2})"); }),
  };
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                          "gradient_clipping", "zero_optimization", "optimizer", "scheduler", "bf16"}) {
    for (const std::string& value : hostile_values()) {
      inputs.push_back(with_config(key + (" = " + value), {0, 2, 3, 4},
                                   [key, value] { return "{\"" + std::string(key) + "\": " + value + "}"; }));
    }
  }
  return inputs;
}

HostileInputs hostile_checkpoints() {
  HostileInputs inputs;
  for (const bool inspects : {false, true}) {
    for (const auto& [what, change] : spoilt_manifests()) {
      const auto make = change;
      inputs.push_back(with_checkpoint(
          "manifest: " + what, {3},
          [make](const HostileFolder& folder, const std::string& step) {
            folder.write(step + "/manifest.json", make(folder.read(step + "/manifest.json")));
          },
          inspects));
    }
    for (const auto& [what, always, run] : spoilt_runs()) {
      const auto change = with_run(run);
      inputs.push_back(with_checkpoint(
          "a run of " + what, {inspects && !always ? 0 : 3},
          [change](const HostileFolder& folder, const std::string& step) {
            folder.write(step + "/manifest.json", change(folder.read(step + "/manifest.json")));
          },
          inspects));
    }
    inputs.push_back(with_checkpoint(
        "a file is cut", {3},
        [](const HostileFolder& folder, const std::string& step) {
          std::filesystem::resize_file(folder / step + "/rank-0000-of-0001.safetensors", 1000);
        },
        inspects));
    inputs.push_back(with_checkpoint(
        "a byte of a file is another", {3},
        [](const HostileFolder& folder, const std::string& step) {
          const std::string name = step + "/rank-0000-of-0001.safetensors";
          std::string text = folder.read(name);
          text[text.size() - 9] = char(text[text.size() - 9] ^ 1);
          folder.write(name, text);
        },
        inspects));
    inputs.push_back(with_checkpoint(
        "a file is gone", {3},
        [](const HostileFolder& folder, const std::string& step) {
          std::filesystem::remove(folder / step + "/rank-0000-of-0001.safetensors");
        },
        inspects));
  }
  return inputs;
}

}  // namespace zeno::test
