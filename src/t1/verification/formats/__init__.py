"""What verifiers write, parsed at the border: one module a format.

Boundary: bytes in, assertions or a number out; a ValueError says what is wrong. What that means for the verdict is
decided in `results.py`.
"""
