"""The language of sm_90a alone: shared memory, barriers, asynchronous copies and products, roles of warps."""
