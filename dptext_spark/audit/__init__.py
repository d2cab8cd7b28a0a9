"""Does the code that runs keep what its guarantee says? A search for violations, with exact confidence.

Words are perturbed many times by the code that sanitizes tables. Half of the outputs choose an event, a set
of output words that tells two input words apart; the other half bounds its probability under both (Clopper
and Pearson 1934), and so the loss from below. No audit proves a guarantee: it can only find that one does
not hold. It therefore says too what it would have found, measured on the same words with epsilon
multiplied. At the dimensions of real embeddings that is next to nothing: hence small worlds, where it is
much.
"""
