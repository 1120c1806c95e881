"""What a built folder says of itself where it is shipped: manifest, bill of materials, signature, layout for Hugging Face."""
