"""The intermediate representation: SSA core, types, dialect tables, text, verifier, rewriter and interpreter."""
