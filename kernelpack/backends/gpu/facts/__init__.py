"""What is known of tiles on a GPU: shared memory, registers, products, the roles of warps; changes nothing."""
