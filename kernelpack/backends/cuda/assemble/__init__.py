"""From LLVM IR to PTX and to cubins: LLVM, ptxas or nvJitLink, and the objects that they link."""
