"""Plain torch references, one file for each operation; every kernel is tested against them."""
