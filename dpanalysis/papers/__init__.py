"""The papers whose claims are checked, one package each; ``accounting`` has the bounds used here.

The package of a paper registers it and lists its statements; its modules register the claims. All
modules in this folder are found automatically.
"""
