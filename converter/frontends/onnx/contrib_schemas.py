"""The attributes of onnxruntime's own ops (the domain com.microsoft), of which onnx has no schemas.

They are those of onnxruntime's schemas (docs/ContribOperators.md there), which refuse all others.
"""

from __future__ import annotations

_NAMES = {
    "Attention": (
        "do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes rotary_embedding_dim scale unidirectional"
    ),
    "BiasAdd": "",
    "BiasDropout": "seed",
    "BiasGelu": "",
    "BiasSoftmax": "axis is_inner_broadcast",
    "BiasSplitGelu": "",
    "BifurcationDetector": "max_ngram_size min_ngram_size",
    "BranchwiseRMSNorm": "epsilon num_branches",
    "CDist": "metric",
    "CausalConvWithState": (
        "activation channels_last dilation input_channel_offset input_channels ndim state_channels_last state_length "
        "state_update_capacity state_window"
    ),
    "ComplexMul": "",
    "ComplexMulConj": "",
    "ConvTransposeWithDynamicPads": "auto_pad dilations group kernel_shape output_padding strides",
    "CropAndResize": "extrapolation_value mode",
    "DecoderMaskedMultiHeadAttention": "mask_filter_value num_heads output_qk past_present_share_buffer scale",
    "DequantizeLinear": "axis",
    "DynamicQuantizeLSTM": "activation_alpha activation_beta activations clip direction hidden_size input_forget",
    "DynamicQuantizeMatMul": "",
    "DynamicTimeWarping": "",
    "EmbedLayerNormalization": "epsilon mask_index_type",
    "ExpandDims": "",
    "FastGelu": "",
    "FusedConv": "activation activation_params auto_pad dilations group kernel_shape pads strides",
    "FusedGemm": "activation activation_alpha activation_beta activation_gamma alpha beta transA transB",
    "FusedMatMul": "alpha transA transB transBatchA transBatchB",
    "FusedMatMulActivation": (
        "activation activation_alpha activation_axis activation_beta activation_gamma alpha transA transB transBatchA transBatchB"
    ),
    "GatedAdd": "",
    "GatedRMSNorm": "activation epsilon",
    "GatherBlockQuantized": "bits block_size gather_axis quantize_axis",
    "GatherND": "",
    "Gelu": "",
    "GemmFastGelu": "",
    "GridSample": "align_corners mode padding_mode",
    "GroupNorm": "activation channels_last epsilon groups",
    "GroupQueryAttention": (
        "causal do_rotary k_norm_epsilon k_quant_type kv_cache_bit_width kv_num_heads local_window_size num_heads "
        "q_norm_epsilon qk_norm_epsilon qk_output rotary_interleaved scale sliding_window_cache smooth_softmax softcap "
        "v_quant_type"
    ),
    "Inverse": "",
    "LinearAttention": "chunk_size kv_num_heads q_num_heads scale state_window update_rule",
    "LinearAttentionGate": "",
    "MRotaryEmbedding": "interleaved is_packed_batching mrope_layout mrope_section num_heads rotary_embedding_dim scale",
    "MatMulBnb4": "K N block_size quant_type training_mode transB",
    "MatMulInteger16": "",
    "MatMulIntegerToFloat": "",
    "MatMulNBits": "K N accuracy_level bits block_size weight_prepacked",
    "MoE": (
        "activation_alpha activation_beta activation_type k normalize_routing_weights swiglu_fusion swiglu_limit "
        "swiglu_limit_after_activation use_sparse_mixer"
    ),
    "MultiHeadAttention": "mask_filter_value num_heads scale unidirectional",
    "MurmurHash3": "positive seed",
    "NGramRepeatBlock": "ngram_size",
    "NhwcConv": "auto_pad dilations group kernel_shape pads strides",
    "NhwcFusedConv": "activation activation_params auto_pad dilations group kernel_shape pads strides",
    "NhwcMaxPool": "auto_pad ceil_mode dilations kernel_shape pads strides",
    "Pad": "mode",
    "QAttention": "do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional",
    "QEmbedLayerNormalization": "epsilon",
    "QGemm": "alpha transA transB",
    "QLinearAdd": "",
    "QLinearAveragePool": "auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides",
    "QLinearConcat": "axis",
    "QLinearConv": "auto_pad channels_last dilations group kernel_shape pads strides",
    "QLinearGlobalAveragePool": "channels_last",
    "QLinearLeakyRelu": "alpha",
    "QLinearMul": "",
    "QLinearReduceMean": "axes keepdims",
    "QLinearSigmoid": "",
    "QLinearSoftmax": "axis opset",
    "QLinearWhere": "",
    "QMoE": (
        "accuracy_level activation_alpha activation_beta activation_type block_size expert_weight_bits "
        "fc1_expert_weight_bits fc2_expert_weight_bits fc3_expert_weight_bits k normalize_routing_weights quant_type "
        "swiglu_fusion swiglu_limit swiglu_limit_after_activation use_sparse_mixer weights_prepacked"
    ),
    "QuantizeLinear": "axis",
    "QuickGelu": "alpha",
    "Range": "",
    "RotaryEmbedding": "interleaved is_packed_batching num_heads rotary_embedding_dim scale",
    "SampleOp": "",
    "ScaledSiLU": "alpha",
    "SimplifiedLayerNormalization": "axis epsilon stash_type",
    "SkipGroupNorm": "activation channels_last epsilon groups",
    "SkipLayerNormalization": "epsilon",
    "SkipSimplifiedLayerNormalization": "epsilon",
    "Tokenizer": "mark mincharnum pad_value separators tokenexp",
    "TransposeMatMul": "alpha transA transB",
    "Trilu": "upper",
    "UnfoldTensor": "dim size step",
    "Unique": "",
}

#: Op type → what attributes it has.
CONTRIB_ATTRIBUTES = {op_type: frozenset(names.split()) for op_type, names in _NAMES.items()}
