"""What the checks ask."""

PROMPTS = (
    "What is the capital of France?",
    "Write two sentences about the sea.",
    "List three prime numbers.",
    "Explain why the sky is blue.",
    "Translate to German: Good morning.",
    "Write a Python function that adds two numbers.",
    "What is 17 plus 25?",
    "Name a mammal that can fly.",
    "Tell me a short story about a lighthouse.",
    "How do I boil an egg?",
    "Who wrote Hamlet?",
    "Give me a synonym of quick.",
    "What does a compiler do?",
    "Describe a rainy day in autumn.",
    "Why do we need sleep?",
    "What is the largest planet?",
    "Write a polite answer to an invitation.",
    "How many legs has a spider?",
    "What is a matrix?",
    "Summarise the story of Little Red Riding Hood.",
)
