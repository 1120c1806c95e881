"""What an op's author states: schema, configs, the space of variants, the kernels."""
