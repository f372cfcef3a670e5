#include "key_blocks.hpp"
#include "tidemark/plan/pipeline_schedule.hpp"
#include "tidemark/program/shards.hpp"

namespace tidemark {

using Type = ValueType;

const std::vector<std::string_view> unit_types = {"float32", "bfloat16", "float16"};

std::vector<Block> parallel_blocks() {
  return {
      {"parallel",
       "",
       {{"tensor", Type::integer, "1", "Ranks that share the products' columns and rows."},
        {"sequence", Type::boolean, "false", "They share the tokens between those products too."},
        {"context", Type::integer, "1", "Ranks that share the tokens of a sequence."},
        {"expert", Type::integer, "1", "Ranks that share out the routed experts."},
        {"expert_tensor", Type::integer, "tensor", "Ranks that share each expert's columns."},
        {"data", Type::integer, "1", "Replicas of the model, each with a batch of its own."},
        {"sharding",
         Type::choice,
         "none",
         "What replicas divide: optimizer states, gradients too, parameters too; or units that are gathered.",
         {sharding_names.begin(), sharding_names.end()}},
        {"distributed_optimizer", Type::boolean, "false", "Megatron-LM's: replicas divide states and master weights."},
        {"fsdp", Type::block, "{}", "How the units of fsdp1 and fsdp2 are gathered.", {}, "fsdp"},
        {"pipeline", Type::integer, "1", "Stages the layers are cut into."},
        {"virtual", Type::integer, "1; 2 for zb_v", "Chunks of layers a stage holds."},
        {"layers_per_chunk", Type::integers, "the same for all", "One number, or a list of one a chunk."},
        {"schedule",
         Type::choice,
         "1f1b; interleaved with several chunks a stage",
         "In which order a stage runs forwards and backwards.",
         {schedule_names.begin(), schedule_names.end()}},
        {"schedule_file", Type::path, "none", "Instead: a CSV with one row a rank, of passes such as 0F0, 1I3, 1W3."},
        {"micro_batches", Type::integer, "those of `schedule_file`, else `batch.accumulate`",
         "Micro-batches of a step."},
        {"transfer_time", Type::time, "0 ns", "From one stage to the next, each way."},
        {"transfer_bandwidth", Type::byte_rate, "no time for bytes", "Between stages; adds to transfer_time."},
        {"stages_per_node", Type::integer, "all", "Neighbouring stages that share a node."},
        {"node_transfer_time", Type::time, "transfer_time", "Between stages of two nodes."},
        {"node_transfer_bandwidth", Type::byte_rate, "transfer_bandwidth", "The same: adds to node_transfer_time."},
        {"blocking_transfers", Type::boolean, "false",
         "A stage computes nothing while it sends, as Megatron-LM without overlapped transfers."},
        {"turn_waits",
         Type::choice,
         "each",
         "interleaved, from the last stage to the first one's next chunk and back: does each micro-batch wait for its "
         "data, or the first of its group alone?",
         {"each", "first"}},
        {"free_outputs", Type::boolean, "true with loop megatron",
         "A chunk's output goes when it has been sent, where backward does not read it."},
        {"stage_policies", Type::steps, "`policy` for all", "One policy a stage: its kind, or a map.", {}, "policy"},
        {"stage_policies_file", Type::path, "none", "Instead: a file of them, as tidemark plan --out writes it."},
        {"steady", Type::boolean, "false",
         "Micro-batches in the middle that repeat the ones before are not simulated; the figures are the same."},
        {"stage", Type::text, "all", "The stage that results show, from 0; or all."},
        {"rank", Type::text, "all", "The same by rank: a pipeline has one rank a stage."}}},
      {"stage_plan",
       "",
       {{"stage_policies", Type::steps, "", "One policy a stage: its kind, or a map.", {}, "policy"}}},
      {"fsdp",
       "",
       {{"forward_prefetch", Type::integer, "0", "Units gathered while another one runs forward."},
        {"backward_prefetch", Type::integer, "1", "The same in backward; 1 is BACKWARD_PRE."},
        {"limit_all_gathers", Type::boolean, "true",
         "false: the host runs ahead, so a pass issues its gathers at once."},
        {"reshard_after_forward", Type::text, "true", "true, false, or the ranks that divide a unit after forward."},
        {"reshard_last_block", Type::boolean, "true; false with model code torchtitan",
         "false: the last block stays whole from forward to backward."},
        {"parameter_dtype", Type::dtype, "dtype.parameters", "Gathered and computed in.", unit_types},
        {"reduce_dtype", Type::dtype, "the gradients'", "Of the reduce-scatter.", unit_types},
        {"no_sync", Type::boolean, "false", "Gradients are reduced in a step's last micro-batch only."},
        {"ignored_modules", Type::texts, "none", "Weights that every rank has whole, by a component of their name."}}}};
}

}  // namespace tidemark
