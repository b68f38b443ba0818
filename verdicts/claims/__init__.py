"""What released packages claim: one module a package."""
