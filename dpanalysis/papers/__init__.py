"""The papers whose claims are checked, a package each; ``accounting`` has the bounds used here.

The package of a paper registers it and lists its statements; its modules register the claims. All
modules are found by looking into this folder.
"""
