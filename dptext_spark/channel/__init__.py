"""How likely each word comes out of each other word, as all who know the mechanism can compute.

Attackers, and those who analyse a release, read the released words through it.
"""
