"""What the language's operators and functions mean, as operations of ttir."""
