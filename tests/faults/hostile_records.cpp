#include "tests/faults/hostile_input.h"

namespace zeno::test {
namespace {

constexpr size_t kDeep = 100'000;
const std::string kGood =
    R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]})";

std::string chat(const std::string& content) {
  return R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": )" + content +
         "}]}";
}
std::string messages(const std::string& value) { return R"({"messages": )" + value + "}"; }
std::string beside(const std::string& key, const std::string& value) {
  return kGood.substr(0, kGood.size() - 1) + ", \"" + key + "\": " + value + "}";
}
std::string call(const std::string& arguments) {
  return R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [)"
         R"({"type": "function", "function": {"name": "f", "arguments": )" +
         arguments + "}}]}]}";
}

struct Record {
  const char* name;
  std::set<int> exits;
  std::function<std::string()> line;
};

// A record among good ones, as a line of its own.
HostileInput input_of(const Record& record) {
  return {std::string("record: ") + record.name, record.exits, "bad.jsonl",
          [line = record.line](const HostileFolder& folder) {
            folder.write("bad.jsonl", kGood + "\n" + kGood + "\n" + line() + "\n" + kGood + "\n");
            return "data --chat-template chatml --seq-len 64 --model " + folder / "model" + " --data " +
                   folder / "bad.jsonl";
          }};
}

// Prompts of zeno generate, one in a line.
HostileInput prompt(const std::string& what, int exit_code, const std::string& mentions,
                    const std::function<std::string()>& line) {
  return {"prompt: " + what, {exit_code}, mentions, [line](const HostileFolder& folder) {
            folder.write("bad.prompts", "{\"prompt\": \"hi\"}\n" + line() + "\n");
            return "generate --device cpu --max-new-tokens 1 --chat --chat-template chatml --model " +
                   folder / "model" + " --prompt-file " + folder / "bad.prompts";
          }};
}

HostileInputs prompts() {
  const auto deep = [] { return nested("[", "", "]", kDeep); };
  const auto many = [] { return "[\"\"" + repeated(",\"\"", 10'000'000) + "]"; };
  return {
      prompt("deep messages", 3, "bad.prompts:2", [=] { return messages(deep()); }),
      prompt("deep content", 3, "bad.prompts:2", [=] { return chat(deep()); }),
      prompt("deep arrays beside it", 3, "bad.prompts:2", [=] { return beside("extra", deep()); }),
      prompt("deep objects beside a text", 3, "bad.prompts:2",
             [] { return R"({"prompt": "a", "x": )" + nested("{\"a\":", "1", "}", kDeep) + "}"; }),
      prompt("messages of 30 MB", 3, "bad.prompts:2", [=] { return messages(many()); }),
      prompt("30 MB beside it", 3, "bad.prompts:2", [=] { return beside("extra", many()); }),
      prompt("cut", 3, "bad.prompts:2", [] { return kGood.substr(0, 40); }),
      prompt("no prompt", 3, "bad.prompts:2", [] { return std::string("{}"); }),
      prompt("10 MB", 2, "prompt 2", [] { return repeated("word ", 2'000'000); }),
      prompt("100 MB", 3, "prompt", [] { return repeated("word ", 20'000'000); }),
      prompt("a message of 100 MB", 3, "prompt",
             [] { return chat('"' + repeated("word ", 20'000'000) + '"'); }),
      prompt("200 MB", 3, "bad.prompts", [] { return repeated("word ", 40'000'000); }),
  };
}

std::vector<Record> nested_records() {
  const auto arrays = [] { return nested("[", "", "]", kDeep); };
  const auto objects = [] { return nested("{\"a\":", "1", "}", kDeep); };
  return {
      {"deep arrays beside it", {3}, [=] { return beside("extra", arrays()); }},
      {"deep objects beside it", {3}, [=] { return beside("extra", objects()); }},
      {"deep arrays as content", {3}, [=] { return chat(arrays()); }},
      {"deep objects as content", {3}, [=] { return chat(objects()); }},
      {"deep arrays as messages", {3}, [=] { return messages(arrays()); }},
      {"deep objects as arguments", {3}, [=] { return call(objects()); }},
      {"deep arrays as arguments", {3}, [=] { return call(arrays()); }},
      {"deep text of arguments", {0, 3}, [=] { return call("\"" + repeated("[", kDeep) + "\""); }},
      {"deep arrays as tools", {3}, [=] { return beside("tools", arrays()); }},
      {"deep text as tools", {0, 3}, [=] { return beside("tools", "\"" + repeated("[", kDeep) + "\""); }},
      {"deep arrays as record", {3}, arrays},
      {"deep objects as record", {3}, objects},
      {"brackets without end", {3}, [] { return repeated("[", 1'000'000); }},
      {"braces without end", {3}, [] { return repeated("{\"a\":", 1'000'000); }},
      {"brackets that close nothing", {3}, [] { return repeated("]", 1'000'000); }},
      {"messages within messages", {3}, [] { return nested(R"({"messages": [)", "", "]}", 10'000); }},
      {"parts within parts",
       {3},
       [] { return chat(nested(R"([{"type": "text", "text": )", "\"x\"", "}]", 10'000)); }},
  };
}

std::vector<Record> broken_records() {
  return {
      {"cut", {3}, [] { return kGood.substr(0, 40); }},
      {"two on a line", {3}, [] { return kGood + kGood; }},
      {"a comma at the end", {3}, [] { return kGood + ","; }},
      {"single quotes", {3}, [] { return std::string("{'messages': []}"); }},
      {"a comment", {3}, [] { return "// no" + kGood; }},
      {"a byte that is not UTF-8", {3}, [] { return chat("\"\xff\xfe\""); }},
      {"a long form of UTF-8", {3}, [] { return chat("\"\xc0\xaf\""); }},
      {"half of a surrogate", {0, 3}, [] { return chat(R"("\ud800")"); }},
      {"surrogates the wrong way", {0, 3}, [] { return chat(R"("\udc00\ud800")"); }},
      {"a control character", {0, 3}, [] { return chat("\"a\x01z\""); }},
      {"a NUL", {3}, [] { return chat(std::string("\"a\0z\"", 5)); }},
      {"an escaped NUL", {0, 3}, [] { return chat(R"("a\u0000z")"); }},
      {"escapes of terminals", {0}, [] { return chat(R"("\u001b[31m\u0007")"); }},
      {"an unknown escape", {3}, [] { return chat(R"("\x41")"); }},
      {"UTF-16", {3}, [] { return std::string("{\0\"\0a\0\"\0:\0001\0}\0", 14); }},
      {"a mark of order in the middle", {0, 3}, [] { return "\xef\xbb\xbf" + kGood; }},
      {"null", {3}, [] { return std::string("null"); }},
      {"a number", {3}, [] { return std::string("17"); }},
      {"a text", {3}, [] { return std::string("\"text\""); }},
      {"an empty array", {3}, [] { return std::string("[]"); }},
      {"an empty object", {3}, [] { return std::string("{}"); }},
      {"NaN", {3}, [] { return beside("score", "NaN"); }},
      {"Infinity", {3}, [] { return beside("score", "-Infinity"); }},
      {"1e999", {3}, [] { return beside("score", "1e999"); }},
      {"1e-999", {0, 3}, [] { return beside("score", "1e-999"); }},
      {"zeros in front", {3}, [] { return beside("score", "0123"); }},
      {"a number of a million digits", {0, 3}, [] { return beside("score", repeated("7", 1'000'000)); }},
      {"a fraction of a million digits",
       {0, 3},
       [] { return beside("score", "0." + repeated("7", 1'000'000)); }},
      {"key twice", {0, 3}, [] { return beside("messages", "[]"); }},
  };
}

std::vector<Record> odd_records() {
  std::vector<Record> records{
      {"no messages", {3}, [] { return messages("[]"); }},
      {"messages of texts", {0, 3}, [] { return messages(R"(["a", "b"])"); }},
      {"messages of arrays", {3}, [] { return messages("[[]]"); }},
      {"empty messages", {3}, [] { return messages("[{}]"); }},
      {"messages of two kinds",
       {0, 3},
       [] { return messages(R"([{"role": "user", "content": "a"}, {"from": "gpt", "value": "b"}])"); }},
      {"a role that is a number", {3}, [] { return messages(R"([{"role": 1, "content": "a"}])"); }},
      {"a role that is an array", {3}, [] { return messages(R"([{"role": [], "content": "a"}])"); }},
      {"a role of a megabyte",
       {0, 3},
       [] { return messages(R"([{"role": ")" + repeated("r", 1 << 20) + R"(", "content": "a"}])"); }},
      {"only the user speaks", {0, 3}, [] { return messages(R"([{"role": "user", "content": "a"}])"); }},
      {"content of unknown parts", {3}, [] { return chat(R"([{"type": "hologram", "data": 1}])"); }},
      {"content of numbers", {3}, [] { return chat("[1, 2]"); }},
      {"a key of a megabyte", {0, 3}, [] { return beside(repeated("k", 1 << 20), "1"); }},
      {"a key of escapes", {0, 3}, [] { return beside(R"(a\n\u001b[2J)", "1"); }},
      {"100,000 keys",
       {3},
       [] {
         std::string line = kGood.substr(0, kGood.size() - 1);
         for (int i = 0; i < 100'000; ++i) line += ", \"key" + std::to_string(i) + "\": " + std::to_string(i);
         return line + "}";
       }},
      {"a million numbers", {0}, [] { return beside("extra", "[1" + repeated(",1", 1'000'000) + "]"); }},
      {"3 million numbers", {0}, [] { return beside("extra", "[1" + repeated(",1", 3'000'000) + "]"); }},
      {"30 MB of numbers", {3}, [] { return beside("extra", "[1" + repeated(",1", 15'000'000) + "]"); }},
      {"30 MB of empty texts",
       {3},
       [] { return beside("extra", "[\"\"" + repeated(",\"\"", 10'000'000) + "]"); }},
      {"100 MB of empty objects",
       {3},
       [] { return beside("extra", "[{}" + repeated(",{}", 33'000'000) + "]"); }},
      {"tools of 900,000 texts",
       {0},
       [] { return beside("tools", "[\"\"" + repeated(",\"\"", 900'000) + "]"); }},
      {"a million empty texts",
       {3},
       [] { return beside("extra", "[\"\"" + repeated(",\"\"", 1'000'000) + "]"); }},
      {"a million empty objects",
       {3},
       [] { return beside("extra", "[{}" + repeated(",{}", 1'000'000) + "]"); }},
      {"100,000 messages",
       {0, 3},
       [] {
         return messages(
             "[" +
             repeated(R"({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, )",
                      50'000) +
             R"({"role": "user", "content": "a"}])");
       }},
      {"a text of 5 MB", {0, 3}, [] { return chat("\"" + repeated("word ", 1'000'000) + "\""); }},
      {"5 MB of one letter", {0, 3}, [] { return chat("\"" + repeated("a", 5'000'000) + "\""); }},
      {"5 MB of blanks", {0, 3}, [] { return chat("\"" + repeated(" ", 5'000'000) + "\""); }},
      {"6 MB of escapes", {0, 3}, [] { return chat("\"" + repeated("\\u0041", 1'000'000) + "\""); }},
      {"3 MB of marks over a letter",
       {0, 3},
       [] { return chat("\"e" + repeated("\xcc\x81", 1'500'000) + "\""); }},
      {"a text of 15 MB", {0}, [] { return chat("\"" + repeated("word ", 3'000'000) + "\""); }},
      {"a line of 60 MB", {3}, [] { return chat("\"" + repeated("word ", 12'000'000) + "\""); }},
      {"a line of 100 MB", {3}, [] { return chat("\"" + repeated("word ", 20'000'000) + "\""); }},
      {"a prompt of 100 MB",
       {3},
       [] { return R"({"prompt": ")" + repeated("word ", 20'000'000) + R"(", "completion": "a"})"; }},
      {"a plain text of 100 MB", {3}, [] { return R"({"text": ")" + repeated("word ", 20'000'000) + "\"}"; }},
  };
  for (const char* ids :
       {"[]", "[-1]", "[300]", "[1e3]", "[1.5]", "[\"1\"]", "[null]", "[[1]]", "[9223372036854775808]", "7"})
    records.push_back({"input_ids", {0, 3}, [ids] { return std::string("{\"input_ids\": ") + ids + "}"; }});
  for (const std::string& value : hostile_values()) {
    records.push_back({"messages", {3}, [value] { return messages(value); }});
    records.push_back({"content", {0, 3}, [value] { return chat(value); }});
    records.push_back({"text", {3}, [value] { return "{\"text\": " + value + "}"; }});
    records.push_back({"arguments", {0, 3}, [value] { return call(value); }});
  }
  return records;
}

}  // namespace

HostileInputs hostile_records() {
  HostileInputs inputs;
  for (const auto& records : {nested_records(), broken_records(), odd_records()}) {
    for (const Record& record : records) inputs.push_back(input_of(record));
  }
  for (HostileInput& input : prompts()) inputs.push_back(std::move(input));
  return inputs;
}

}  // namespace zeno::test
