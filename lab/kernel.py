FLAVOURS = ("debug", "bench")
VARIANTS = ("patched", "unpatched")
