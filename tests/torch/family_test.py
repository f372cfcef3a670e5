"""Models of the transformer family, written as their framework writes them, really run: the simulated step is equal."""
import sys
import tempfile

import capture_test
import torch

import t5


def scenario(version, options, batch, source, target):
    sizes = {"layers": 2, "decoder_layers": 2, "width": 24, "heads": 3, "head_dim": 5, "inner": 40, "vocab": 37,
             "dropout": 0.1, "gated": False, "tied": True}
    sizes.update(options)
    model = {"family": "transformer", "model_type": "t5", "layers": sizes["layers"],
             "decoder_layers": sizes["decoder_layers"], "hidden": sizes["width"], "heads": sizes["heads"],
             "head_dim": sizes["head_dim"], "ffn_hidden": sizes["inner"], "vocab": sizes["vocab"],
             "dropout": sizes["dropout"], "gated_ffn": sizes["gated"],
             "activation": "gelu_new" if sizes["gated"] else "relu", "tied_embeddings": sizes["tied"]}
    return "profile: pytorch-%s-cpu\nmodel: %s\nbatch: {size: %d, sequence: %d, target: %d}\n" % (
        version, capture_test.flow(model), batch, source, target)


CASES = [
    ("t5", {}, 2, 6, 9),
    ("t5, no dropout", {"dropout": 0.0}, 2, 6, 9),
    ("t5, gated and untied", {"gated": True, "tied": False}, 2, 7, 4),
    ("t5, one sequence", {"dropout": 0.0}, 1, 6, 9),
    ("t5, a deeper decoder", {"layers": 1, "decoder_layers": 3, "gated": True}, 3, 5, 5),
]


def steps():
    """The step as it is, and with blocks as torch.utils.checkpoint's regions. Re-entrant regions of T5 hand on the biases
    with gradients of their own, which is not simulated."""
    for case in CASES:
        yield case, None, ""
    for case in CASES:
        for rng in (True, False):
            yield case, {"use_reentrant": False, "preserve_rng_state": rng}, \
                "policy: {kind: full, checkpointing: {kind: nonreentrant, preserve_rng: %s}}\n" % str(rng).lower()


def main():
    program = sys.argv[1]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    version = "2.6" if int(torch.__version__.split(".")[0]) >= 2 else "1.13"
    failed = passed = 0
    with tempfile.TemporaryDirectory() as folder:
        recorder = capture_test.build_recorder(folder)
        for (name, options, batch, source, target), checkpointing, policy in steps():
            ids, labels = torch.randint(0, 37, (batch, source)), torch.randint(0, 37, (batch, target))
            model = t5.T5(**options)
            for stack in (model.encoder, model.decoder):
                stack.gradient_checkpointing = checkpointing
            wanted = capture_test.recorded(recorder, model, (ids, labels), lambda loss: loss)
            got = capture_test.simulated(program, scenario(version, options, batch, source, target) + policy, folder)
            apart = capture_test.difference(got, wanted)
            failed, passed = failed + bool(apart), passed + (not apart)
            if apart:
                print("FAILED %s, %s: %s" % (name, policy.strip(), apart))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
