"""Claims of released packages, one module per package."""
