"""How likely each word comes out of each other word, as anyone who knows the mechanism can work out.

Attackers, and whoever analyses a release, read the released words through it.
"""
