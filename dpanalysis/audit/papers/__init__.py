"""The claims that this package checks.

Every module here registers claims, and one module of each paper registers the paper: its
authors, year and title stand nowhere else. All modules are found by looking into this folder.
"""
