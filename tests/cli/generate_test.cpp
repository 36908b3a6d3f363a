// `zeno generate` and `zeno export` as a user runs them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/temp_dir.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;

class GenerateCli : public testing::Test {
 protected:
  void SetUp() override {
    const CommandResult made = zeno(
        "init --arch llama --hidden 32 --layers 2 --heads 4 --kv-heads 2 --vocab 300 --max-positions 64 "
        "--out " +
        model());
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }

  CommandResult zeno(const std::string& arguments) const { return run_command(kZeno + " " + arguments); }
  // Only what goes to stdout.
  std::string text(const std::string& arguments) const { return text_of(model(), arguments); }
  static std::string text_of(const std::string& folder, const std::string& arguments,
                             const std::string& input = "") {
    return run_command("(" + input + kZeno + " generate --device cpu --model " + folder + " " + arguments +
                       " 2>/dev/null)")
        .output;
  }
  CommandResult generate(const std::string& arguments) const {
    return zeno("generate --device cpu --model " + model() + " " + arguments);
  }
  std::string model() const { return path("model"); }
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  std::string contents(const std::string& file) const {
    std::ifstream in(path(file), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void expect_failure(const CommandResult& result, int exit_code,
                      const std::vector<std::string>& parts) const {
    EXPECT_EQ(result.exit_code, exit_code) << result.output;
    for (const std::string& part : parts)
      EXPECT_NE(result.output.find(part), std::string::npos)
          << "'" << part << "' is missing in: " << result.output;
  }

  TempDir dir_;
};

TEST_F(GenerateCli, ContinuesAPrompt) {
  const CommandResult result = generate("--prompt 'a b c' --max-new-tokens 12 --temperature 1 --seed 3");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("12 new tokens"), std::string::npos) << result.output;
  const std::string once = text("--prompt 'a b c' --max-new-tokens 12 --temperature 1 --seed 3");
  EXPECT_EQ(once, text("--prompt 'a b c' --max-new-tokens 12 --temperature 1 --seed 3 --threads 1"));
  EXPECT_NE(once, text("--prompt 'a b c' --max-new-tokens 12 --temperature 1 --seed 4"));
  EXPECT_EQ(text("--prompt 'a b c' --max-new-tokens 12 --greedy"),
            text("--prompt 'a b c' --max-new-tokens 12 --temperature 0 --seed 9"));
  // As in transformers, without do_sample the likeliest token is taken.
  EXPECT_EQ(text("--prompt 'a b c' --max-new-tokens 12 --greedy"),
            text("--prompt 'a b c' --max-new-tokens 12 --seed 9"));
  dir_.write("model/generation_config.json", R"({"do_sample": true, "temperature": 5})");
  EXPECT_NE(text("--prompt 'a b c' --max-new-tokens 12 --seed 3"),
            text("--prompt 'a b c' --max-new-tokens 12 --seed 4"));
  expect_failure(generate("--prompt x --max-new-tokens 500 --greedy --dtype bf16"), 0,
                 {"end of the context, 64 tokens"});
}

TEST_F(GenerateCli, AnswersAFileOfPrompts) {
  dir_.write("prompts.jsonl", "{\"prompt\": \"one\"}\nplain text\n\n{\"prompt\": \"three\"}\n");
  const std::string lines =
      text("--greedy --max-new-tokens 5 --batch 2 --prompt-file " + path("prompts.jsonl"));
  std::istringstream in(lines);
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].at("prompt"), "plain text");
  EXPECT_EQ(all[2].at("finish"), "length");
  const std::string alone = text("--greedy --max-new-tokens 5 --prompt three");
  EXPECT_EQ(all[2].at("completion").get<std::string>().substr(0, 3), alone.substr(0, 3));
  dir_.write("bad.jsonl", "{\"prompt\": \"one\"}\n{\"text\": 1}\n");
  expect_failure(generate("--prompt-file " + path("bad.jsonl")), 3, {"bad.jsonl:2", "prompt"});
  dir_.write("broken.jsonl", "{\"prompt\": \n");
  expect_failure(generate("--prompt-file " + path("broken.jsonl")), 3, {"broken.jsonl:1", "JSON"});
}

TEST_F(GenerateCli, EndsBeforeAStopText) {
  const std::string whole = text("--prompt 'a b c' --max-new-tokens 12 --temperature 1 --seed 3");
  ASSERT_GT(whole.size(), 8u);
  // A printable character of it, not the first.
  size_t at = 1;
  while (at < whole.size() && (!isalnum(static_cast<unsigned char>(whole[at])) || whole.find(whole[at]) < at))
    ++at;
  ASSERT_LT(at, whole.size()) << "nothing printable was generated: " << whole;
  EXPECT_EQ(text("--prompt 'a b c' --max-new-tokens 12 --temperature 1 --seed 3 --stop " +
                 std::string(1, whole[at])),
            whole.substr(0, at) + "\n");
}

TEST_F(GenerateCli, ChatsThroughTheTemplate) {
  dir_.write("model/chat_template.jinja",
             "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
             "{% if add_generation_prompt %}assistant:{% endif %}");
  EXPECT_EQ(text("--chat --system Hm --prompt hello --greedy --max-new-tokens 6"),
            text("--prompt 'system: Hm\nuser: hello\nassistant:' --greedy --max-new-tokens 6"));
  dir_.write("model/chat_template.jinja", "{{ strftime_now('%d %b %Y') }}");
  EXPECT_EQ(text("--chat --prompt x --chat-date 2024-02-29 --greedy --max-new-tokens 6"),
            text("--prompt '29 Feb 2024' --greedy --max-new-tokens 6"));
  dir_.write("model/chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  // Two turns from a pipe; the first answer is that of a single prompt.
  const std::string turns = text_of(model(), "--chat --greedy --max-new-tokens 6",
                                    "printf 'hello\\n/clear\\nhello\\n/exit\\nnever\\n' | ");
  const std::string once = text("--chat --prompt hello --greedy --max-new-tokens 6");
  EXPECT_EQ(turns, once + once);
}

TEST_F(GenerateCli, SaysWhatIsWrong) {
  expect_failure(generate(""), 2, {"--prompt"});
  expect_failure(generate("--prompt x --prompt-file y"), 2, {"both"});
  expect_failure(generate("--prompt x --dtype int4"), 2, {"--dtype", "int4", "bf16"});
  expect_failure(zeno("generate --model " + model() + " --prompt x --device tpu"), 2, {"--device", "tpu"});
  expect_failure(generate("--prompt x --top-p 3"), 2, {"top-p", "3"});
  expect_failure(generate("--prompt x --chat-template chatml"), 2, {"plain prompts", "--chat"});
  expect_failure(generate("--prompt x --batch 0"), 2, {"--batch: got 0, expected a number above 0"});
  expect_failure(generate("--prompt x --seed -1"), 2, {"--seed: got -1, expected a number from 0 on"});
  expect_failure(generate("--prompt x --top-k many"), 2, {"--top-k"});
  expect_failure(generate("--prompt-file " + path("nowhere")), 3, {"nowhere", "no such file"});
  expect_failure(generate("--prompt x --chat --chat-template nothing"), 2, {"nothing"});
  expect_failure(generate("--prompt x --chat --chat-date 2023-02-29"), 2, {"--chat-date", "2023-02-29"});
  expect_failure(generate("--prompt " + std::string(80, 'x')), 2, {"80 tokens", "64", "context"});
  expect_failure(zeno("generate --model " + path("nothing") + " --prompt x"), 3, {"nothing"});
}

TEST_F(GenerateCli, ExportsShardsThatGenerateTheSame) {
  const CommandResult made = zeno("export " + model() + " " + path("out") + " --max-shard-size 20KB");
  ASSERT_EQ(made.exit_code, 0) << made.output;
  EXPECT_TRUE(fs::exists(path("out/model.safetensors.index.json")));
  EXPECT_FALSE(fs::exists(path("out/model.safetensors")));
  EXPECT_EQ(contents("out/tokenizer.json"), contents("model/tokenizer.json"));
  const auto index = nlohmann::json::parse(contents("out/model.safetensors.index.json"));
  for (const auto& [name, file] : index.at("weight_map").items())
    EXPECT_TRUE(fs::exists(path("out/" + file.get<std::string>()))) << name;
  EXPECT_EQ(text_of(path("out"), "--prompt abc --greedy --max-new-tokens 8"),
            text("--prompt abc --greedy --max-new-tokens 8"));

  // Back to one file: the shards go, and the weights are those of the beginning.
  expect_failure(zeno("export " + model() + " " + path("out")), 2, {"already holds a model", "--overwrite"});
  ASSERT_EQ(zeno("export " + path("out") + " " + path("back")).exit_code, 0);
  EXPECT_EQ(contents("back/model.safetensors"), contents("model/model.safetensors"));
  ASSERT_EQ(zeno("export " + model() + " " + path("out") + " --overwrite --dtype bf16").exit_code, 0);
  for (const auto& entry : fs::directory_iterator(path("out")))
    EXPECT_EQ(entry.path().filename().string().find("-of-"), std::string::npos) << entry.path();
  EXPECT_NE(contents("out/config.json").find("bfloat16"), std::string::npos);
}

TEST_F(GenerateCli, ExportMergesAnAdapter) {
  const std::string golden = std::string(ZENO_SOURCE_DIR) + "/tests/golden/";
  const std::string adapter = golden + "lora/llama_qv ", base = golden + "model_llama_gqa";
  expect_failure(zeno("export " + adapter + path("out") + " --merge"), 2, {"--base", "model_llama_gqa"});
  const CommandResult made = zeno("export " + adapter + path("out") + " --merge --base " + base);
  ASSERT_EQ(made.exit_code, 0) << made.output;
  ASSERT_EQ(zeno("export " + base + " " + path("plain")).exit_code, 0);
  EXPECT_EQ(contents("out/config.json"), contents("plain/config.json"));
  EXPECT_EQ(contents("out/model.safetensors").size(), contents("plain/model.safetensors").size());
  EXPECT_NE(contents("out/model.safetensors"), contents("plain/model.safetensors"));
}

TEST_F(GenerateCli, ExportSaysWhatIsWrong) {
  expect_failure(zeno("export " + model() + " " + model()), 2, {"source and result"});
  expect_failure(zeno("export " + path("nothing") + " " + path("out")), 3, {"config.json"});
  expect_failure(zeno("export " + model() + " " + path("out") + " --dtype int8"), 2, {"--dtype", "int8"});
  expect_failure(zeno("export " + model() + " " + path("out") + " --max-shard-size lots"), 2,
                 {"lots", "5GB"});
  expect_failure(zeno("export " + model() + " " + path("out") + " --base " + model()), 2, {"--merge"});
  fs::create_directory(path("adapter"));
  dir_.write("adapter/adapter_config.json", "{}");
  expect_failure(zeno("export " + path("adapter") + " " + path("out")), 2, {"adapter", "--merge"});
  EXPECT_FALSE(fs::exists(path("out")));
  // Damaged weights: nothing that looks like a model is left.
  std::fstream(path("model/model.safetensors"), std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-4, std::ios::end)
      .write("\xff\xff\xff\xff", 4);
  expect_failure(zeno("export " + model() + " " + path("out")), 3, {"nan"});
  EXPECT_FALSE(fs::exists(path("out/config.json")));
  EXPECT_FALSE(fs::exists(path("out/model.safetensors")));
}

}  // namespace
}  // namespace zeno::test
