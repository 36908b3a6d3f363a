#include "zeno/data/chat/presets.h"

#include <string_view>

namespace zeno::data {
namespace {

// Before every preset: the text of a content that is a text, a list of parts, or nothing.
constexpr std::string_view kWords = R"({%- macro words(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- elif content -%}
    {%- for part in content if part.text is defined -%}{{- part.text -}}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
)";

// The calls of an assistant's message, one block of JSON each.
constexpr std::string_view kCalls = R"({%- macro calls(message) -%}
  {%- for call in message.tool_calls or [] -%}
    {%- set function = call.function if call.function is defined else call -%}
    {%- if not loop.first or message.content %}{{ '\n' }}{% endif -%}
    {{- '<tool_call>\n{"name": "' ~ function.name ~ '", "arguments": ' -}}
    {{- function.arguments if function.arguments is string else function.arguments | tojson -}}
    {{- '}\n</tool_call>' -}}
  {%- endfor -%}
{%- endmacro -%}
{%- macro offer(tools) -%}
  {{- '# Tools\n\nThese functions can be called:\n<tools>' -}}
  {%- for tool in tools -%}{{- '\n' ~ (tool | tojson) -}}{%- endfor -%}
  {{- '\n</tools>\n\nCall a function by writing\n<tool_call>\n{"name": its name, "arguments": a JSON object}\n</tool_call>' -}}
{%- endmacro -%}
)";

constexpr std::string_view kChatml = R"({%- for message in messages -%}
  {{- '<|im_start|>' ~ message.role ~ '\n' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}{{- words(message.content) ~ calls(message) ~ '<|im_end|>' -}}{%- endgeneration -%}
  {%- else -%}
    {{- words(message.content) -}}
    {%- if loop.first and message.role == 'system' and tools -%}{{- '\n\n' ~ offer(tools) -}}{%- endif -%}
    {{- '<|im_end|>' -}}
  {%- endif -%}
  {{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)";

constexpr std::string_view kLlama3 = R"({{- bos_token | default('<|begin_of_text|>') -}}
{%- for message in messages -%}
  {%- set role = 'ipython' if message.role == 'tool' else message.role -%}
  {{- '<|start_header_id|>' ~ role ~ '<|end_header_id|>\n\n' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- words(message.content) | trim -}}
      {%- for call in message.tool_calls or [] -%}
        {%- set function = call.function if call.function is defined else call -%}
        {{- '{"name": "' ~ function.name ~ '", "parameters": ' -}}
        {{- (function.arguments if function.arguments is string else function.arguments | tojson) ~ '}' -}}
      {%- endfor -%}
      {{- '<|eot_id|>' -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- words(message.content) | trim -}}
    {%- if loop.first and message.role == 'system' and tools -%}{{- '\n\n' ~ offer(tools) -}}{%- endif -%}
    {{- '<|eot_id|>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%}
)";

// The beginning of both Qwen formats: the system turn, with the tools in it.
constexpr std::string_view kQwenSystem = R"({%- set given = messages and messages[0].role == 'system' -%}
{%- set system = words(messages[0].content) if given else standard_system -%}
{%- if system or tools -%}
  {{- '<|im_start|>system\n' ~ system -}}
  {%- if tools -%}{{- ('\n\n' if system else '') ~ offer(tools) -}}{%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endif -%}
)";

constexpr std::string_view kQwenTurns = R"({%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- generation -%}
      {%- set text = words(message.content) -%}
      {%- if thinks -%}
        {%- set thought = message.reasoning_content if message.reasoning_content is string else '' -%}
        {%- if not thought and '</think>' in text -%}
          {%- set thought = text.split('</think>')[0].split('<think>')[-1] -%}
        {%- endif -%}
        {%- set text = text.split('</think>')[-1].lstrip('\n') -%}
        {%- if loop.index0 > last.query and (loop.last or thought) -%}
          {{- '<think>\n' ~ thought.strip('\n') ~ '\n</think>\n\n' -}}
        {%- endif -%}
      {%- endif -%}
      {{- text ~ calls(message) ~ '<|im_end|>' -}}
    {%- endgeneration -%}
    {{- '\n' -}}
  {%- elif message.role == 'tool' -%}
    {%- if loop.first or loop.previtem.role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
    {{- '\n<tool_response>\n' ~ words(message.content) ~ '\n</tool_response>' -}}
    {%- if loop.last or loop.nextitem.role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
  {%- elif message.role != 'system' or not loop.first -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ words(message.content) ~ '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {%- if thinks and enable_thinking is defined and enable_thinking is false -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}
{%- endif -%}
)";

constexpr std::string_view kQwen25Begin = R"({%- set thinks = false -%}
{%- set standard_system = 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' -%}
)";

// Thinking is kept only behind the last question of the user.
constexpr std::string_view kQwen3Begin = R"({%- set thinks = true -%}
{%- set standard_system = '' -%}
{%- set last = namespace(query=messages | length - 1) -%}
{%- for message in messages | reverse -%}
  {%- if message.role == 'user' and not words(message.content).startswith('<tool_response>') -%}
    {%- set last.query = messages | length - loop.index -%}
    {%- break -%}
  {%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kMistral = R"({{- bos_token | default('<s>') -}}
{%- set system = namespace(text='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set system.text = system.text ~ words(message.content) ~ '\n\n' -%}
  {%- elif message.role == 'user' -%}
    {%- if tools and loop.last -%}{{- '[AVAILABLE_TOOLS] ' ~ (tools | tojson) ~ '[/AVAILABLE_TOOLS]' -}}{%- endif -%}
    {{- '[INST] ' ~ system.text ~ words(message.content) ~ '[/INST]' -}}
    {%- set system.text = '' -%}
  {%- elif message.role == 'tool' -%}
    {{- '[TOOL_RESULTS] {"content": ' ~ (words(message.content) | tojson) ~ '}[/TOOL_RESULTS]' -}}
  {%- elif message.role == 'assistant' -%}
    {%- generation -%}
      {%- if message.tool_calls -%}
        {{- '[TOOL_CALLS] [' -}}
        {%- for call in message.tool_calls -%}
          {{- (call.function if call.function is defined else call) | tojson ~ ('' if loop.last else ', ') -}}
        {%- endfor -%}
        {{- ']' -}}
      {%- else -%}
        {{- ' ' ~ words(message.content) -}}
      {%- endif -%}
      {{- eos_token | default('</s>') -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- raise_exception('role "' ~ message.role ~ '": expected system, user, assistant or tool') -}}
  {%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kGemma = R"({{- bos_token | default('<bos>') -}}
{%- set system = namespace(text='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set system.text = system.text ~ words(message.content) | trim ~ '\n\n' -%}
  {%- elif message.role == 'assistant' -%}
    {{- '<start_of_turn>model\n' -}}
    {%- generation -%}{{- words(message.content) | trim ~ '<end_of_turn>' -}}{%- endgeneration -%}
    {{- '\n' -}}
  {%- else -%}
    {{- '<start_of_turn>user\n' ~ system.text ~ words(message.content) | trim ~ '<end_of_turn>\n' -}}
    {%- set system.text = '' -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%}
)";

constexpr std::string_view kPhi = R"({%- for message in messages -%}
  {{- '<|' ~ message.role ~ '|>\n' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}{{- words(message.content) ~ calls(message) ~ '<|end|>' -}}{%- endgeneration -%}
  {%- else -%}
    {{- words(message.content) ~ '<|end|>' -}}
  {%- endif -%}
  {{- '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%}
)";

constexpr std::string_view kAlpaca = R"({%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {{- words(message.content) ~ '\n\n' -}}
  {%- elif message.role == 'assistant' -%}
    {{- '### Response:\n' -}}
    {%- generation -%}{{- words(message.content) ~ eos_token -}}{%- endgeneration -%}
    {{- '\n\n' -}}
  {%- else -%}
    {{- '### Instruction:\n' ~ words(message.content) ~ '\n\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '### Response:\n' -}}{%- endif -%}
)";

constexpr std::string_view kPlain = R"({%- for message in messages -%}
  {{- message.role | capitalize ~ ': ' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}{{- words(message.content) ~ eos_token ~ '\n' -}}{%- endgeneration -%}
  {%- else -%}
    {{- words(message.content) ~ '\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant: ' -}}{%- endif -%}
)";

struct Recipe {
  std::string_view name;
  std::vector<std::string_view> pieces;
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all{
      {"chatml", {kWords, kCalls, kChatml}},
      {"llama3", {kWords, kCalls, kLlama3}},
      {"qwen2.5", {kWords, kCalls, kQwen25Begin, kQwenSystem, kQwenTurns}},
      {"qwen3", {kWords, kCalls, kQwen3Begin, kQwenSystem, kQwenTurns}},
      {"mistral", {kWords, kMistral}},
      {"gemma", {kWords, kGemma}},
      {"phi", {kWords, kCalls, kPhi}},
      {"alpaca", {kWords, kAlpaca}},
      {"plain", {kWords, kPlain}},
  };
  return all;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> out;
  for (const Recipe& recipe : recipes()) out.emplace_back(recipe.name);
  return out;
}

std::optional<std::string> preset_source(const std::string& name) {
  for (const Recipe& recipe : recipes()) {
    if (recipe.name != name) continue;
    std::string out;
    for (const std::string_view piece : recipe.pieces) out += piece;
    return out;
  }
  return std::nullopt;
}

}  // namespace zeno::data
