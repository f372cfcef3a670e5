"""T5 line by line as transformers writes it (modeling_t5.py), without what a training step does not reach.

Masks, shifted labels and buckets of distances are single tensors: how they are made differs by release.
"""
import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class LayerNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden_states):
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + 1e-6)
        return self.weight * hidden_states


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class DenseActDense(nn.Module):
    def __init__(self, width, inner, dropout):
        super().__init__()
        self.wi, self.wo = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden_states):
        hidden_states = self.wi(hidden_states)
        hidden_states = torch.relu(hidden_states)
        hidden_states = self.dropout(hidden_states)
        hidden_states = self.wo(hidden_states)
        return hidden_states


class DenseGatedActDense(nn.Module):
    def __init__(self, width, inner, dropout):
        super().__init__()
        self.wi_0, self.wi_1 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.wo, self.dropout = nn.Linear(inner, width, bias=False), nn.Dropout(dropout)

    def forward(self, hidden_states):
        hidden_gelu = gelu_new(self.wi_0(hidden_states))
        hidden_linear = self.wi_1(hidden_states)
        hidden_states = hidden_gelu * hidden_linear
        hidden_states = self.dropout(hidden_states)
        hidden_states = self.wo(hidden_states)
        return hidden_states


class LayerFF(nn.Module):
    def __init__(self, width, inner, dropout, gated):
        super().__init__()
        self.dense = (DenseGatedActDense if gated else DenseActDense)(width, inner, dropout)
        self.layer_norm, self.dropout = LayerNorm(width), nn.Dropout(dropout)

    def forward(self, hidden_states):
        forwarded_states = self.layer_norm(hidden_states)
        forwarded_states = self.dense(forwarded_states)
        hidden_states = hidden_states + self.dropout(forwarded_states)
        return hidden_states


class Attention(nn.Module):
    def __init__(self, width, heads, head_dim, dropout, buckets):
        super().__init__()
        self.heads, self.head_dim, self.dropout = heads, head_dim, dropout
        self.q, self.k, self.v = (nn.Linear(width, heads * head_dim, bias=False) for _ in range(3))
        self.o = nn.Linear(heads * head_dim, width, bias=False)
        self.relative_attention_bias = nn.Embedding(buckets, heads) if buckets else None

    def compute_bias(self, query_length, key_length):
        relative_position_bucket = torch.zeros((query_length, key_length), dtype=torch.long)
        values = self.relative_attention_bias(relative_position_bucket)
        values = values.permute([2, 0, 1]).unsqueeze(0)
        return values

    def forward(self, hidden_states, mask, key_value_states=None, position_bias=None):
        batch_size, seq_length = hidden_states.shape[:2]
        key_length = seq_length if key_value_states is None else key_value_states.shape[1]

        def shape(states):
            return states.view(batch_size, -1, self.heads, self.head_dim).transpose(1, 2)

        def unshape(states):
            return states.transpose(1, 2).contiguous().view(batch_size, -1, self.heads * self.head_dim)

        query_states = shape(self.q(hidden_states))
        key_states = shape(self.k(hidden_states if key_value_states is None else key_value_states))
        value_states = shape(self.v(hidden_states if key_value_states is None else key_value_states))
        scores = torch.matmul(query_states, key_states.transpose(3, 2))
        if position_bias is None:
            if self.relative_attention_bias is None:
                position_bias = torch.zeros((1, self.heads, seq_length, key_length))
            else:
                position_bias = self.compute_bias(seq_length, key_length)
            position_bias = position_bias + mask
        scores += position_bias
        attn_weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        attn_weights = nn.functional.dropout(attn_weights, p=self.dropout, training=True)
        attn_output = unshape(torch.matmul(attn_weights, value_states))
        attn_output = self.o(attn_output)
        return attn_output, position_bias


class LayerAttention(nn.Module):
    def __init__(self, width, heads, head_dim, dropout, buckets):
        super().__init__()
        self.attention = Attention(width, heads, head_dim, dropout, buckets)
        self.layer_norm, self.dropout = LayerNorm(width), nn.Dropout(dropout)

    def forward(self, hidden_states, mask, key_value_states=None, position_bias=None):
        normed_hidden_states = self.layer_norm(hidden_states)
        attention_output = self.attention(normed_hidden_states, mask, key_value_states, position_bias)
        hidden_states = hidden_states + self.dropout(attention_output[0])
        outputs = (hidden_states,) + attention_output[1:]
        return outputs


class Block(nn.Module):
    def __init__(self, sizes, buckets, is_decoder):
        super().__init__()
        width, heads, head_dim, inner, dropout, gated = sizes
        self.layer = nn.ModuleList([LayerAttention(width, heads, head_dim, dropout, buckets)])
        if is_decoder:
            self.layer.append(LayerAttention(width, heads, head_dim, dropout, 0))
        self.layer.append(LayerFF(width, inner, dropout, gated))

    def forward(self, hidden_states, mask, position_bias, encoder_hidden_states, encoder_mask, cross_bias):
        self_attention_outputs = self.layer[0](hidden_states, mask, None, position_bias)
        hidden_states = self_attention_outputs[0]
        attention_outputs = self_attention_outputs[1:]
        if encoder_hidden_states is not None:
            cross_attention_outputs = self.layer[1](hidden_states, encoder_mask, encoder_hidden_states, cross_bias)
            hidden_states = cross_attention_outputs[0]
            attention_outputs = attention_outputs + cross_attention_outputs[1:]
        hidden_states = self.layer[-1](hidden_states)
        return (hidden_states,) + attention_outputs


class Stack(nn.Module):
    def __init__(self, embed_tokens, sizes, layers, buckets, is_decoder):
        super().__init__()
        self.embed_tokens, self.is_decoder = embed_tokens, is_decoder
        self.block = nn.ModuleList(Block(sizes, buckets if i == 0 else 0, is_decoder) for i in range(layers))
        self.final_layer_norm, self.dropout = LayerNorm(sizes[0]), nn.Dropout(sizes[4])
        self.gradient_checkpointing = None  # keyword arguments of checkpoint()

    def forward(self, input_ids, encoder_hidden_states=None):
        inputs_embeds = self.embed_tokens(input_ids)
        batch, rows = input_ids.shape
        mask = torch.zeros((batch, 1, rows if self.is_decoder else 1, rows))
        encoder_mask = None
        if self.is_decoder:
            encoder_mask = torch.zeros((batch, 1, 1, encoder_hidden_states.shape[1]))
        position_bias = None
        cross_bias = None
        hidden_states = self.dropout(inputs_embeds)
        for layer_module in self.block:
            if self.gradient_checkpointing is not None:
                layer_outputs = checkpoint(layer_module.forward, hidden_states, mask, position_bias,
                                           encoder_hidden_states, encoder_mask, cross_bias,
                                           **self.gradient_checkpointing)
            else:
                layer_outputs = layer_module(hidden_states, mask, position_bias, encoder_hidden_states, encoder_mask,
                                             cross_bias)
            hidden_states = layer_outputs[0]
            position_bias = layer_outputs[1]
            if self.is_decoder:
                cross_bias = layer_outputs[2]
        hidden_states = self.final_layer_norm(hidden_states)
        hidden_states = self.dropout(hidden_states)
        return (hidden_states,)


class T5(nn.Module):
    def __init__(self, layers=2, decoder_layers=2, width=24, heads=3, head_dim=5, inner=40, vocab=37, buckets=32,
                 dropout=0.1, gated=False, tied=True):
        super().__init__()
        sizes = (width, heads, head_dim, inner, dropout, gated)
        self.shared = nn.Embedding(vocab, width)
        self.encoder = Stack(self.shared, sizes, layers, buckets, False)
        self.decoder = Stack(self.shared, sizes, decoder_layers, buckets, True)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.width, self.tied = width, tied
        if tied:
            self.lm_head.weight = self.shared.weight

    def forward(self, input_ids, labels, decoder_input_ids=None, encoder_outputs=None):
        encoder_outputs = self.encoder(input_ids)
        hidden_states = encoder_outputs[0]
        decoder_input_ids = labels.new_zeros(labels.shape)
        decoder_outputs = self.decoder(decoder_input_ids, hidden_states)
        sequence_output = decoder_outputs[0]
        if self.tied:
            sequence_output = sequence_output * (self.width ** -0.5)
        lm_logits = self.lm_head(sequence_output)
        loss_fct = nn.CrossEntropyLoss(ignore_index=-100)
        loss = loss_fct(lm_logits.view(-1, lm_logits.size(-1)), labels.view(-1))
        return loss
