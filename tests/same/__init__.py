"""`make same REF=commit`: whether every stage of every kernel that tests and ops compile is what it was at a commit."""
