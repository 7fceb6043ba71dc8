#include "models/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/model_family.h"

namespace ptqwatch::internal {
namespace model_config_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json Config(const std::string& model_type) {
  return {{"model_type", model_type},     {"vocab_size", 97},       {"hidden_size", 48},
          {"intermediate_size", 80},      {"num_hidden_layers", 8}, {"num_attention_heads", 6},
          {"max_position_embeddings", 64}};
}

absl::StatusOr<ModelConfig> Parse(const json& config) {
  return ParseModelConfig(config.dump(), "dir/config.json");
}

ModelConfig Parsed(const json& config) {
  absl::StatusOr<ModelConfig> model = Parse(config);
  if (!model.ok()) ADD_FAILURE() << model.status();
  return *model;
}

// The message of the refusal, which names the file.
std::string Refusal(const json& config) {
  const absl::Status status = Parse(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status << " of " << config;
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("'dir/config.json'"));
  return message;
}

TEST(ModelConfigTest, ReadsMixtures) {
  json config = Config("olmoe");
  ModelConfig model = Parsed(config);
  EXPECT_EQ(model.mixture, (MixtureConfig{.experts = 64, .chosen = 8, .intermediate = 80}));
  EXPECT_TRUE(model.layers[7].mixture);
  config["num_local_experts"] = 5;
  config["num_experts_per_tok"] = 5;
  config["norm_topk_prob"] = true;
  EXPECT_EQ(Parsed(config).mixture,
            (MixtureConfig{.experts = 5, .chosen = 5, .intermediate = 80, .normalized = true}));
  config["num_experts"] = 6;
  EXPECT_THAT(Refusal(config), HasSubstr("num_local_experts is 5, but num_experts 6"));
  config.erase("num_local_experts");
  config["num_experts_per_tok"] = 7;
  EXPECT_THAT(Refusal(config), HasSubstr("num_experts_per_tok is 7, more than the 6 experts"));
  config["num_experts"] = 0;
  EXPECT_THAT(Refusal(config), HasSubstr("num_experts is 0"));
  EXPECT_FALSE(Parsed(Config("llama")).mixture);
}

TEST(ModelConfigTest, MixturesOfQwen3AreInSomeLayers) {
  json config = Config("qwen3_moe");
  config["num_key_value_heads"] = 6;
  const auto layers = [&] {
    std::string found;
    for (const LayerConfig& layer : Parsed(config).layers) found += layer.mixture ? "m" : "-";
    return found;
  };
  EXPECT_EQ(Parsed(config).mixture,
            (MixtureConfig{.experts = 128, .chosen = 8, .intermediate = 768}));
  EXPECT_EQ(layers(), "mmmmmmmm");
  config["decoder_sparse_step"] = 3;
  EXPECT_EQ(layers(), "--m--m--");
  config["mlp_only_layers"] = {5, 99};
  EXPECT_EQ(layers(), "--m-----");
  config["mlp_only_layers"] = {-1};
  EXPECT_THAT(Refusal(config), HasSubstr("mlp_only_layers is an array; an array of integers"));
  config["mlp_only_layers"] = 5;
  EXPECT_THAT(Refusal(config), HasSubstr("mlp_only_layers is 5; an array of integers"));
  config.erase("mlp_only_layers");
  config["sliding_window"] = 5;
  EXPECT_EQ(Parsed(config).layers[7].window, 0);
  config["use_sliding_window"] = true;
  EXPECT_EQ(Parsed(config).layers[0].window, 5);
  config["layer_types"] = std::vector<std::string>(8, "full_attention");
  EXPECT_THAT(Refusal(config), HasSubstr("all layers of a qwen3_moe have the same window"));
}

TEST(ModelConfigTest, ReadsGptOss) {
  json config = Config("gpt_oss");
  config["num_key_value_heads"] = 6;
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.mixture, (MixtureConfig{.experts = 128,
                                          .chosen = 4,
                                          .intermediate = 80,
                                          .router = RouterKind::kSoftmaxOfChosen,
                                          .clamped = ClampedGate{.alpha = 1.702, .limit = 7}}));
  EXPECT_TRUE(model.sinks && model.qkv_bias && model.output_bias);
  EXPECT_EQ(model.head_dim, 64);
  EXPECT_EQ(model.layers[0].window, 128);
  EXPECT_EQ(model.layers[1].window, 0);
  const RopeConfig yarn = *model.layers[1].rope;
  EXPECT_EQ(yarn, *model.layers[0].rope);
  EXPECT_EQ(yarn.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.factor, 32);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(yarn.original_context, 4096);
  // An empty object is no scaling, and null is as good as absent.
  config["rope_parameters"] = json::object();
  EXPECT_EQ(Parsed(config).layers[1].rope, (RopeConfig{.dims = 64, .theta = 1.5e5}));
  config["rope_parameters"] = nullptr;
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 32},
                            {"truncate", false},
                            {"original_max_position_embeddings", 4096}};
  EXPECT_EQ(Parsed(config).layers[1].rope, yarn);
  config["swiglu_limit"] = 0;
  EXPECT_THAT(Refusal(config), HasSubstr("swiglu_limit is 0"));
}

TEST(ModelConfigTest, ExpertsOfGptOssMayBeInMxfp4) {
  json config = Config("gpt_oss");
  config["num_key_value_heads"] = 6;
  EXPECT_FALSE(Parsed(config).mxfp4);
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  EXPECT_TRUE(Parsed(config).mxfp4);
  config["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_THAT(Refusal(config), AllOf(HasSubstr("quantization_config.quant_method"),
                                     HasSubstr("gptq"), HasSubstr("only mxfp4 is read")));
  config["quantization_config"] = "mxfp4";
  EXPECT_THAT(Refusal(config), HasSubstr("quantization_config"));
  config = Config("llama");
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  EXPECT_THAT(Refusal(config), HasSubstr("a checkpoint in full precision is needed"));
}

TEST(ModelConfigTest, SomeMixturesHaveASharedExpert) {
  json config = Config("qwen2_moe");
  config["num_key_value_heads"] = 6;
  EXPECT_EQ(Parsed(config).mixture, (MixtureConfig{.experts = 60,
                                                   .chosen = 4,
                                                   .intermediate = 1408,
                                                   .shared = SharedExpert::kGated,
                                                   .shared_intermediate = 5632}));
  EXPECT_TRUE(Parsed(config).qkv_bias);
  EXPECT_FALSE(Parsed(config).output_bias);
  config["max_window_layers"] = 4;
  config["sliding_window"] = 0;
  EXPECT_EQ(Parsed(config).layers[0].window, 0);
  config["use_sliding_window"] = true;
  EXPECT_THAT(Refusal(config), HasSubstr("sliding_window is missing or unused, but layer 0"));
  config["sliding_window"] = 5;
  std::vector<int64_t> windows;
  for (const LayerConfig& layer : Parsed(config).layers) windows.push_back(layer.window);
  EXPECT_EQ(windows, std::vector<int64_t>({5, 0, 5, 0, 0, 0, 0, 0}));
  config = Config("granitemoeshared");
  EXPECT_EQ(Parsed(config).mixture->shared, SharedExpert::kNone);
  config["shared_intermediate_size"] = 24;
  EXPECT_EQ(Parsed(config).mixture->shared, SharedExpert::kFused);
  EXPECT_EQ(Parsed(config).mixture->shared_intermediate, 24);
  config = Config("olmoe");
  config["num_experts"] = 10'001;
  EXPECT_THAT(Refusal(config), HasSubstr("num_experts"));
}

TEST(ModelConfigTest, OtherMixturesWeighTheChosenExperts) {
  json config = Config("mixtral");
  config["num_key_value_heads"] = 6;
  EXPECT_EQ(Parsed(config).mixture,
            (MixtureConfig{.experts = 8, .chosen = 2, .intermediate = 80, .normalized = true}));
  EXPECT_EQ(Parsed(config).layers[0].window, 0);
  EXPECT_EQ(Parsed(config).layers[0].rope->theta, 1e6);
  EXPECT_EQ(Parsed(Config("granitemoe")).mixture->router, RouterKind::kSoftmaxOfChosen);
}

TEST(ModelConfigTest, ReadsPythia) {
  json config = Config("gpt_neox");
  config["rotary_pct"] = 0.25;
  config["rotary_emb_base"] = 10000;
  config["use_parallel_residual"] = true;
  config["hidden_act"] = "gelu";
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.norm, NormKind::kLayerNorm);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(model.residual, Residual::kParallel);
  EXPECT_EQ(model.qkv, QkvLayout::kByHead);
  EXPECT_EQ(model.activation, Activation::kGelu);
  EXPECT_TRUE(model.qkv_bias && model.output_bias && model.mlp_bias);
  EXPECT_FALSE(model.gated || model.tied_head);
  EXPECT_EQ(model.head_dim, 8);
  EXPECT_EQ(model.layers[7].rope, (RopeConfig{.dims = 2, .theta = 1e4}));
  config["use_parallel_residual"] = false;
  EXPECT_EQ(Parsed(config).residual, Residual::kPre);
}

TEST(ModelConfigTest, ReadsOlmo) {
  json config = Config("olmo");
  config["clip_qkv"] = 8.0;
  config["tie_word_embeddings"] = true;
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.norm, NormKind::kPlainLayerNorm);
  EXPECT_EQ(model.clip_qkv, 8.0);
  EXPECT_TRUE(model.tied_head);
  config["clip_qkv"] = nullptr;
  EXPECT_EQ(Parsed(config).clip_qkv, std::nullopt);
}

TEST(ModelConfigTest, ReadsOlmo2And3) {
  json config = Config("olmo2");
  config["rms_norm_eps"] = 1e-6;
  config["rope_theta"] = 500000;
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.residual, Residual::kPost);
  EXPECT_EQ(model.qk_norm, QkNorm::kProjection);
  EXPECT_EQ(model.norm_eps, 1e-6);
  EXPECT_EQ(model.layers[0].rope->theta, 5e5);
  EXPECT_EQ(model.layers[0].window, 0);

  json windowed = Config("olmo3");
  windowed["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
  const ModelConfig olmo3 = Parsed(windowed);
  EXPECT_EQ(olmo3.layers[2].window, 4096);
  EXPECT_EQ(olmo3.layers[3].window, 0);
  EXPECT_EQ(olmo3.layers[2].rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(olmo3.layers[3].rope->scaling, RopeScaling::kLinear);
  EXPECT_EQ(olmo3.layers[3].rope->factor, 2);
  json own_theta = Config("olmo3");
  own_theta["rope_scaling"] = {{"rope_type", "default"}, {"rope_theta", 333}};
  EXPECT_EQ(Parsed(own_theta).layers[3].rope->theta, 333);
  EXPECT_EQ(Parsed(own_theta).layers[2].rope->theta, 5e5);
  json flat = Config("olmo3");
  flat["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  EXPECT_THAT(Refusal(flat), HasSubstr("rope_parameters has neither full_attention"));
  json both = windowed;
  both["rope_parameters"] = {{"full_attention", {{"rope_theta", 1e4}}}};
  EXPECT_THAT(Refusal(both), HasSubstr("rope_parameters is there beside rope_scaling"));
  json older = Config("olmo3");
  older["rope_theta"] = 1e4;
  EXPECT_THAT(Refusal(older), AllOf(HasSubstr("rope_theta is"), HasSubstr("only 500000 is known")));
}

TEST(ModelConfigTest, ReadsSmolLm3) {
  json config = Config("smollm3");
  config["num_key_value_heads"] = 2;
  const ModelConfig model = Parsed(config);
  EXPECT_TRUE(model.tied_head);
  EXPECT_EQ(model.layers[2].rope->theta, 2e6);
  EXPECT_FALSE(model.layers[3].rope || model.layers[7].rope);
  config["no_rope_layers"] = {0, 1, 1, 1, 1, 1, 1, 0, 1};
  EXPECT_FALSE(Parsed(config).layers[0].rope || Parsed(config).layers[7].rope);
  EXPECT_TRUE(Parsed(config).layers[3].rope);
}

TEST(ModelConfigTest, ReadsApertus) {
  const RopeConfig llama3 = {.dims = 8,
                             .theta = 1.2e7,
                             .scaling = RopeScaling::kLlama3,
                             .factor = 8,
                             .low_freq_factor = 1,
                             .high_freq_factor = 4,
                             .original_context = 8192};
  json config = Config("apertus");
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.activation, Activation::kXielu);
  EXPECT_EQ(model.qk_norm, QkNorm::kHead);
  EXPECT_FALSE(model.gated);
  EXPECT_EQ(model.layers[0].rope, llama3);
  config["rope_scaling"] = nullptr;
  config["rope_theta"] = 5e5;
  EXPECT_EQ(Parsed(config).layers[0].rope, (RopeConfig{.dims = 8, .theta = 5e5}));
}

TEST(ModelConfigTest, ReadsOpenSci) {
  json config = Config("opensci");
  config.update({{"num_key_value_heads", 6},
                 {"head_dim", 8},
                 {"attention_bias", true},
                 {"mlp_bias", true},
                 {"qk_layernorm", true}});
  const ModelConfig model = Parsed(config);
  EXPECT_TRUE(model.qkv_bias && model.output_bias && model.mlp_bias && model.gated);
  EXPECT_EQ(model.qk_norm, QkNorm::kHead);
  config["qk_layernorm"] = false;
  EXPECT_EQ(Parsed(config).qk_norm, QkNorm::kNone);
}

TEST(ModelConfigTest, ReadsGranite) {
  json config = Config("granite");
  EXPECT_EQ(Parsed(config).layers[0].attention_scale, 1);
  EXPECT_EQ(Parsed(config).embedding_multiplier, 1);
  config.update({{"embedding_multiplier", 12},
                 {"attention_multiplier", 0.015625},
                 {"residual_multiplier", 0.22},
                 {"logits_scaling", 8.0}});
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.embedding_multiplier, 12);
  EXPECT_EQ(model.layers[7].attention_scale, 0.015625);
  EXPECT_EQ(model.residual_multiplier, 0.22);
  EXPECT_EQ(model.logits_divisor, 8);
  for (const char* key :
       {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}) {
    json wrong = config;
    wrong[key] = 0;
    EXPECT_THAT(Refusal(wrong), HasSubstr(key));
  }
  EXPECT_EQ(Parsed(Config("llama")).layers[0].attention_scale, std::pow(8.0, -0.5));
}

TEST(ModelConfigTest, ReadsErnie) {
  json config = Config("ernie4_5");
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.key_heads, 2);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_TRUE(model.tied_head && model.layers[0].rope->interleaved);
  EXPECT_FALSE(model.qkv_bias || model.output_bias || model.mlp_bias);
  config["use_bias"] = true;
  config["head_dim"] = nullptr;
  const ModelConfig other = Parsed(config);
  EXPECT_TRUE(other.qkv_bias && other.output_bias && other.mlp_bias);
  EXPECT_EQ(other.head_dim, 8);
  config["num_attention_heads"] = 10;
  EXPECT_THAT(Refusal(config), HasSubstr("hidden_size is 48, not a multiple"));
}

TEST(ModelConfigTest, ReadsGlm4) {
  json config = Config("glm4");
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.residual, Residual::kSandwich);
  EXPECT_EQ(model.norm_eps, 1.5625e-7);
  EXPECT_TRUE(model.fused_gate_up && model.qkv_bias);
  EXPECT_FALSE(model.output_bias || model.mlp_bias);
  EXPECT_EQ(model.layers[0].rope, (RopeConfig{.dims = 64, .interleaved = true, .theta = 1e4}));
  config["attention_bias"] = false;
  EXPECT_FALSE(Parsed(config).qkv_bias);
}

TEST(ModelConfigTest, ReadsHunYuan) {
  json config = Config("hunyuan_v1_dense");
  config["head_dim"] = 8;
  const ModelConfig model = Parsed(config);
  EXPECT_TRUE(model.rotates_first);
  EXPECT_EQ(model.layers[0].rope, (RopeConfig{.dims = 8, .theta = 1e4}));
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 1.0}, {"alpha", 1000}};
  EXPECT_EQ(Parsed(config).layers[0].rope,
            (RopeConfig{.dims = 8, .theta = 1e4 * std::pow(1000, 8.0 / 6)}));
  config["rope_scaling"].erase("alpha");
  EXPECT_THAT(Refusal(config), HasSubstr("rope_scaling.alpha is missing"));
}

TEST(ModelConfigTest, ReadsStableLm) {
  json config = Config("stablelm");
  config["num_key_value_heads"] = 2;
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.norm, NormKind::kLayerNorm);
  EXPECT_EQ(model.residual, Residual::kPre);
  EXPECT_EQ(model.layers[0].rope->dims, 2);
  EXPECT_FALSE(model.qkv_bias || model.output_bias);
  config["use_qkv_bias"] = true;
  EXPECT_TRUE(Parsed(config).qkv_bias);
  EXPECT_FALSE(Parsed(config).output_bias);
  for (const char* key : {"qk_layernorm", "use_parallel_residual"}) {
    json wrong = config;
    wrong[key] = true;
    EXPECT_THAT(Refusal(wrong), HasSubstr(std::string(key) + " is true"));
  }
}

TEST(ModelConfigTest, ReadsGemma) {
  json config = Config("gemma");
  config["num_key_value_heads"] = 6;
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.norm, NormKind::kRmsPlusOne);
  EXPECT_EQ(model.activation, Activation::kGeluTanh);
  EXPECT_EQ(model.embedding_multiplier, std::pow(48.0, 0.5));
  EXPECT_EQ(model.head_dim, 256);
  EXPECT_EQ(model.layers[0].attention_scale, 1.0 / 16);
  EXPECT_TRUE(model.tied_head);
  config["hidden_act"] = "gelu";
  EXPECT_EQ(Parsed(config).activation, Activation::kGeluTanh);
  config["use_bidirectional_attention"] = true;
  EXPECT_THAT(Refusal(config), HasSubstr("use_bidirectional_attention is true"));
}

TEST(ModelConfigTest, ReadsGemma2) {
  json config = Config("gemma2");
  config["num_key_value_heads"] = 2;
  config["head_dim"] = 8;
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.residual, Residual::kSandwich);
  EXPECT_EQ(model.attention_softcap, 50);
  EXPECT_EQ(model.logits_softcap, 30);
  EXPECT_EQ(model.layers[0].attention_scale, 1.0 / 16);
  EXPECT_EQ(model.layers[6].window, 4096);
  EXPECT_EQ(model.layers[7].window, 0);
  config.update({{"attn_logit_softcapping", nullptr},
                 {"final_logit_softcapping", 20},
                 {"query_pre_attn_scalar", 144},
                 {"hidden_activation", "gelu"}});
  const ModelConfig other = Parsed(config);
  EXPECT_EQ(other.attention_softcap, std::nullopt);
  EXPECT_EQ(other.logits_softcap, 20);
  EXPECT_EQ(other.layers[0].attention_scale, 1.0 / 12);
  EXPECT_EQ(other.activation, Activation::kGelu);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    json wrong = config;
    wrong[key] = -1;
    EXPECT_THAT(Refusal(wrong), HasSubstr(key));
  }
}

TEST(ModelConfigTest, ReadsGemma3) {
  json config = Config("gemma3_text");
  config["num_key_value_heads"] = 2;
  config["head_dim"] = 8;
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.qk_norm, QkNorm::kHead);
  EXPECT_EQ(model.attention_softcap, std::nullopt);
  EXPECT_EQ(model.logits_softcap, std::nullopt);
  EXPECT_EQ(model.layers[4].window, 4096);
  EXPECT_EQ(model.layers[4].rope, (RopeConfig{.dims = 8, .theta = 1e4}));
  EXPECT_EQ(model.layers[5].window, 0);
  EXPECT_EQ(model.layers[5].rope, (RopeConfig{.dims = 8, .theta = 1e6}));
  const json linear = {{"rope_type", "linear"}, {"factor", 8.0}};
  json older = config;
  older.update({{"rope_theta", 5e5},
                {"rope_local_base_freq", 2e4},
                {"rope_scaling", linear},
                {"sliding_window_pattern", 2}});
  json newer = config;
  newer["sliding_window_pattern"] = 2;
  newer["rope_parameters"] = {{"full_attention", linear},
                              {"sliding_attention", {{"rope_theta", 2e4}}}};
  newer["rope_parameters"]["full_attention"]["rope_theta"] = 5e5;
  EXPECT_EQ(Parsed(older).layers, Parsed(newer).layers);
  EXPECT_EQ(Parsed(older).layers[1].rope->factor, 8);
  EXPECT_EQ(Parsed(older).layers[0].rope, (RopeConfig{.dims = 8, .theta = 2e4}));
  json both = newer;
  both["rope_scaling"] = linear;
  EXPECT_THAT(Refusal(both), HasSubstr("rope_parameters"));
  json flat = config;
  flat["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  EXPECT_THAT(Refusal(flat), HasSubstr("rope_parameters"));
  config["attn_logit_softcapping"] = 50;
  EXPECT_THAT(Refusal(config), HasSubstr("attn_logit_softcapping is 50"));
  EXPECT_THAT(Refusal(Config("gemma3")), HasSubstr("gemma3_text"));
}

TEST(ModelConfigTest, ReadsGpt2) {
  json config = {{"model_type", "gpt2"}, {"vocab_size", 97}, {"n_embd", 48},
                 {"n_layer", 3},         {"n_head", 6},      {"n_positions", 64}};
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.intermediate, 192);
  EXPECT_EQ(model.context, 64);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(model.activation, Activation::kGeluNew);
  EXPECT_TRUE(model.transposed && model.tied_head && model.qkv_bias && model.output_bias);
  EXPECT_FALSE(model.layers[0].rope);
  EXPECT_EQ(model.layers[2].attention_scale, std::pow(8.0, -0.5));
  config["scale_attn_by_inverse_layer_idx"] = true;
  config["reorder_and_upcast_attn"] = true;
  EXPECT_EQ(Parsed(config).layers[2].attention_scale, std::pow(8.0, -0.5) / 3);
  config["scale_attn_weights"] = false;
  EXPECT_EQ(Parsed(config).layers[2].attention_scale, 1.0 / 3);
  config["n_inner"] = 50;
  EXPECT_EQ(Parsed(config).intermediate, 50);
  json wrong = config;
  wrong["activation_function"] = "relu";
  EXPECT_THAT(Refusal(wrong),
              AllOf(HasSubstr("activation_function is \"relu\""), HasSubstr("gelu_new")));
  wrong = config;
  wrong["add_cross_attention"] = true;
  EXPECT_THAT(Refusal(wrong), HasSubstr("add_cross_attention is true"));
  wrong = config;
  wrong["num_key_value_heads"] = 2;
  EXPECT_THAT(Refusal(wrong), HasSubstr("num_key_value_heads is 2; a gpt2 has as many as heads"));
  wrong = config;
  wrong["n_head"] = 5;
  EXPECT_THAT(Refusal(wrong), HasSubstr("n_embd is 48, not a multiple of n_head, 5"));
  for (const char* key : {"n_embd", "n_layer", "n_head", "n_positions"}) {
    wrong = config;
    wrong.erase(key);
    EXPECT_THAT(Refusal(wrong), AllOf(HasSubstr(key), HasSubstr("is missing")));
  }
}

TEST(ModelConfigTest, ReadsMistral) {
  json config = Config("mistral");
  config["num_key_value_heads"] = 2;
  config["head_dim"] = 10;
  EXPECT_EQ(Parsed(config).layers[0].window, 4096);
  config["sliding_window"] = 16;
  const ModelConfig model = Parsed(config);
  EXPECT_EQ(model.layers[0].window, 16);
  EXPECT_EQ(model.layers[7].window, 16);
  EXPECT_EQ(model.head_dim, 10);
  config["layer_types"] = std::vector<std::string>(8, "sliding_attention");
  EXPECT_EQ(Parsed(config).layers[7].window, 16);
  config["layer_types"][5] = "full_attention";
  EXPECT_THAT(Refusal(config), AllOf(HasSubstr("layer_types"), HasSubstr("full_attention")));
  config.erase("layer_types");
  config["sliding_window"] = nullptr;
  EXPECT_EQ(Parsed(config).layers[0].window, 0);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(Parsed(config).key_heads, 6);
}

TEST(ModelConfigTest, ReadsPhi3) {
  json config = Config("phi3");
  config["num_key_value_heads"] = 2;
  config["partial_rotary_factor"] = 0.75;
  config["original_max_position_embeddings"] = 32;
  config["rope_scaling"] = {
      {"type", "su"}, {"short_factor", {1, 1.5, 2}}, {"long_factor", {1, 2.5, 8}}};
  const ModelConfig model = Parsed(config);
  EXPECT_TRUE(model.gated && model.fused_gate_up);
  EXPECT_FALSE(model.qkv_bias || model.output_bias || model.mlp_bias);
  EXPECT_EQ(model.qkv, QkvLayout::kByKind);
  EXPECT_EQ(model.layers[0].window, 0);
  const RopeConfig rope = {.dims = 6,
                           .theta = 1e4,
                           .scaling = RopeScaling::kLongRope,
                           .factor = 2,
                           .original_context = 32,
                           .attention_factor = std::sqrt(1 + std::log(2.0) / std::log(32.0)),
                           .short_factors = {1, 1.5, 2},
                           .long_factors = {1, 2.5, 8}};
  EXPECT_EQ(model.layers[0].rope, rope);
  config["sliding_window"] = 16;
  EXPECT_EQ(Parsed(config).layers[7].window, 16);
  json wrong = config;
  wrong["rope_scaling"]["long_factor"] = {1, 2};
  EXPECT_THAT(Refusal(wrong), HasSubstr("rope_scaling.long_factor has 2 elements for 3 pairs"));
  wrong["rope_scaling"]["long_factor"] = {1, 2, "x"};
  EXPECT_THAT(Refusal(wrong), HasSubstr("rope_scaling.long_factor"));
  wrong = config;
  wrong["rope_scaling"].erase("short_factor");
  EXPECT_THAT(Refusal(wrong), HasSubstr("rope_scaling.short_factor"));
  wrong = config;
  wrong["original_max_position_embeddings"] = 1;
  EXPECT_THAT(Refusal(wrong), HasSubstr("original_max_position_embeddings"));
  // Phi 3's default goes before what the parameters say.
  config.erase("original_max_position_embeddings");
  config["rope_scaling"]["original_max_position_embeddings"] = 32;
  EXPECT_EQ(Parsed(config).layers[0].rope->original_context, 4096);
}

TEST(ModelConfigTest, ReadsQwen2) {
  json config = Config("qwen2");
  config["num_key_value_heads"] = 2;
  config["sliding_window"] = 16;
  const ModelConfig model = Parsed(config);
  EXPECT_TRUE(model.qkv_bias);
  EXPECT_FALSE(model.output_bias || model.mlp_bias);
  EXPECT_EQ(model.layers[7].window, 0);
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 6;
  EXPECT_EQ(Parsed(config).layers[5].window, 0);
  EXPECT_EQ(Parsed(config).layers[6].window, 16);
}

TEST(ModelConfigTest, BothGenerationsOfKeysMeanTheSame) {
  json older = Config("llama");
  older["rope_theta"] = 5e5;
  older["rope_scaling"] = {{"type", "llama3"},
                           {"factor", 8.0},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 32}};
  json newer = Config("llama");
  newer["rope_parameters"] = older["rope_scaling"];
  newer["rope_parameters"].erase("type");
  newer["rope_parameters"].update({{"rope_type", "llama3"}, {"rope_theta", 5e5}});
  EXPECT_EQ(Parsed(older).layers, Parsed(newer).layers);
  EXPECT_EQ(Parsed(older).layers[0].rope->original_context, 32);
  older["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(Parsed(older).layers[0].rope->original_context, 64);
}

TEST(ModelConfigTest, WindowsFollowLayerTypes) {
  json config = Config("qwen3");
  config.update({{"num_key_value_heads", 2}, {"head_dim", 8}, {"sliding_window", 16}});
  EXPECT_EQ(Parsed(config).layers[7].window, 0);  // use_sliding_window is false
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 6;
  EXPECT_EQ(Parsed(config).layers[5].window, 0);
  EXPECT_EQ(Parsed(config).layers[6].window, 16);
  config["max_window_layers"] = 0;
  EXPECT_EQ(Parsed(config).layers[0].window, 16);
  config["layer_types"] = std::vector<std::string>(8, "sliding_attention");
  EXPECT_EQ(Parsed(config).layers[0].window, 16);
  config["use_sliding_window"] = false;
  EXPECT_THAT(Refusal(config), HasSubstr("sliding_window"));
  config["layer_types"][0] = "linear_attention";
  EXPECT_THAT(Refusal(config), HasSubstr("linear_attention"));
}

TEST(ModelConfigTest, FamiliesWithoutWindowsRefuseThem) {
  for (const char* type : {"olmo2", "glm", "granite"}) {
    json config = Config(type);
    config["layer_types"] = std::vector<std::string>(8, "full_attention");
    EXPECT_TRUE(Parse(config).ok()) << Parse(config).status();
    config["layer_types"][3] = "sliding_attention";
    EXPECT_THAT(Refusal(config), HasSubstr("layer_types has 'sliding_attention'; a " +
                                           std::string(type) + " has full_attention alone"));
  }
}

TEST(ModelConfigTest, HeliumHasABaseOfItsOwn) {
  json config = Config("helium");
  config["num_key_value_heads"] = 6;
  EXPECT_EQ(Parsed(config).layers[0].rope->theta, 1e5);
}

TEST(ModelConfigTest, EveryFamilyHasDefaults) {
  for (const ModelFamily& family : ModelFamilies()) {
    json config = Config(std::string(family.model_type));
    config["num_key_value_heads"] = 6;
    config["head_dim"] = 8;
    config.update({{"n_embd", 48}, {"n_layer", 8}, {"n_head", 6}, {"n_positions", 64}});
    const ModelConfig model = Parsed(config);
    EXPECT_EQ(model.model_type, family.model_type);
    EXPECT_EQ(model.layers.size(), 8u);
    EXPECT_GT(model.norm_eps, 0);
  }
}

TEST(ModelConfigTest, NamesWhatItDoesNotKnow) {
  EXPECT_THAT(Refusal(Config("mamba")), AllOf(HasSubstr("model_type"), HasSubstr("mamba"),
                                              HasSubstr("llama"), HasSubstr("smollm3")));
  json config = Config("llama");
  config["hidden_act"] = "relu2";
  EXPECT_THAT(Refusal(config),
              AllOf(HasSubstr("hidden_act"), HasSubstr("relu2"), HasSubstr("silu")));
  for (const char* type : {"dynamic", "proportional"}) {
    for (const char* key : {"type", "rope_type"}) {
      config = Config("llama");
      config["rope_scaling"] = {{key, type}, {"factor", 4.0}};
      EXPECT_THAT(Refusal(config), AllOf(HasSubstr(std::string("rope_scaling.") + key),
                                         HasSubstr(type), HasSubstr("llama3")));
    }
  }
  config = Config("olmo2");
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}}};
  EXPECT_THAT(Refusal(config), HasSubstr("rope_parameters.full_attention"));
  config = Config("llama");
  config["rope_scaling"] = {{"full_attention", {{"rope_type", "default"}}}};
  EXPECT_THAT(Refusal(config), HasSubstr("rope_scaling.full_attention"));
  config = Config("llama");
  config["hidden_act"] = "xielu";
  EXPECT_THAT(Refusal(config), HasSubstr("hidden_act is \"xielu\"; a llama has no tensors"));
  config = Config("llama");
  config["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(Refusal(config), AllOf(HasSubstr("partial_rotary_factor"), HasSubstr("0.5")));
  config = Config("llama");
  config["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_THAT(Refusal(config), HasSubstr("quantization_config"));
}

TEST(ModelConfigTest, NamesAMissingSize) {
  for (const char* key : {"model_type", "vocab_size", "hidden_size", "intermediate_size",
                          "num_hidden_layers", "num_attention_heads", "max_position_embeddings"}) {
    for (const bool is_null : {false, true}) {
      json config = Config("llama");
      config.erase(key);
      if (is_null) config[key] = nullptr;
      EXPECT_THAT(Refusal(config), AllOf(HasSubstr(key), HasSubstr("is missing")));
    }
  }
}

TEST(ModelConfigTest, NamesAWrongSize) {
  const std::vector<json> wrong = {
      0, -4, 2.5, 1e18, "8", true, json::array({8}), json::object(), uint64_t{1} << 63};
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const json& value : wrong) {
      json config = Config("llama");
      config[key] = value;
      EXPECT_THAT(Refusal(config), HasSubstr(key)) << value;
    }
  }
}

TEST(ModelConfigTest, NamesOtherWrongValues) {
  const std::vector<std::pair<std::string, json>> wrong = {
      {"model_type", 7},
      {"rms_norm_eps", 0},
      {"rms_norm_eps", "small"},
      {"rope_theta", -1},
      {"hidden_act", 1},
      {"tie_word_embeddings", "no"},
      {"attention_bias", 1},
      {"mlp_bias", "true"},
      {"rope_scaling", 4},
      {"rope_parameters", "x"},
      {"num_attention_heads", 5},
      {"num_key_value_heads", 4},
      {"rope_scaling", {{"rope_type", "linear"}}},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}},
      {"rope_scaling", {{"rope_type", 3}}},
      {"rope_scaling", {{"rope_type", "yarn"}}},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}, {"truncate", 1}}},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", "x"}}},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}, {"rope_theta", 1}}},
      {"rope_scaling",
       {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}}};
  for (const auto& [key, value] : wrong) {
    json config = Config("llama");
    config[key] = value;
    EXPECT_THAT(Refusal(config), HasSubstr(key.substr(0, 9))) << key << " " << value;
  }
  json config = Config("smollm3");
  config["num_key_value_heads"] = 2;
  for (const json& value : {json(3), json::array({1, 2}), json::array({1, 0})}) {
    config["no_rope_layers"] = value;
    EXPECT_THAT(Refusal(config), HasSubstr("no_rope_layers"));
  }
  config = Config("gpt_neox");
  config["rotary_pct"] = 1.5;
  EXPECT_THAT(Refusal(config), HasSubstr("rotary_pct"));
  config = Config("llama");
  config["head_dim"] = 7;
  EXPECT_THAT(Refusal(config), HasSubstr("head_dim"));
}

// transformers 5.24 reads them otherwise than they seem to say.
TEST(ModelConfigTest, NamesKeysThatWouldBeReadOtherwise) {
  const auto refusal = [](json config, const json& keys) {
    config.update(keys);
    return Refusal(config);
  };
  for (const std::string family : {"llama", "qwen2", "gemma2", "gpt_neox"}) {
    const json config = Config(family);
    EXPECT_THAT(refusal(config, {{"is_causal", false}}), HasSubstr("is_causal"));
    EXPECT_THAT(refusal(config, {{"is_causal", nullptr}}), HasSubstr("is_causal"));
    EXPECT_THAT(refusal(config, {{"per_layer_config", {{"1", json::object()}}}}),
                HasSubstr("per_layer_config"));
  }
  EXPECT_THAT(refusal(Config("glm4"), {{"partial_rotary_factor", nullptr}}),
              HasSubstr("partial_rotary_factor is null"));
  json gemma3 = Config("gemma3_text");
  gemma3["num_key_value_heads"] = 6;
  EXPECT_THAT(refusal(gemma3, {{"rope_scaling", {{"type", "linear"}, {"factor", 8}}}}),
              HasSubstr("without rope_type"));
  EXPECT_THAT(refusal(gemma3, {{"original_max_position_embeddings", 32},
                               {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}}),
              HasSubstr("original_max_position_embeddings"));
  const json gpt2 = {{"model_type", "gpt2"}, {"vocab_size", 97}, {"n_embd", 48},
                     {"n_layer", 2},         {"n_head", 6},      {"n_positions", 64}};
  EXPECT_TRUE(Parse(gpt2).ok());
  EXPECT_THAT(refusal(gpt2, {{"num_hidden_layers", 3}}),
              HasSubstr("num_hidden_layers is 3, but n_layer 2"));
}

TEST(ModelConfigTest, TextThatIsNotAnObjectIsDamaged) {
  EXPECT_TRUE(absl::IsInvalidArgument(ParseModelConfig("[]", "config.json").status()));
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{\"model_type\": \"llama\",}"),
        std::string("\xff\xfe"), std::string(100'000, '[')}) {
    const absl::Status status = ParseModelConfig(text, "dir/config.json").status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'dir/config.json'"));
  }
}

TEST(ModelConfigTest, ATruncatedOrChangedTextIsReadOrRefused) {
  json config = Config("smollm3");
  config.update({{"num_key_value_heads", 2},
                 {"no_rope_layers", {1, 0, 1, 1, 1, 1, 1, 1}},
                 {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
  const std::string text = config.dump();
  ASSERT_TRUE(ParseModelConfig(text, "config.json").ok());
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_TRUE(absl::IsDataLoss(ParseModelConfig(text.substr(0, i), "config.json").status()));
    for (const char other : {'0', '9', '-', '"', '}', '[', ',', '\xff'}) {
      std::string changed = text;
      changed[i] = other;
      const absl::StatusOr<ModelConfig> model = ParseModelConfig(changed, "config.json");
      if (model.ok()) {
        EXPECT_EQ(model->layers.size(), static_cast<size_t>(model->blocks));
      } else {
        const absl::StatusCode code = model.status().code();
        EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument ||
                    code == absl::StatusCode::kDataLoss)
            << changed;
      }
    }
  }
}

}  // namespace model_config_test
}  // namespace ptqwatch::internal
