"""Does the code that runs keep its guarantee? A search for violations, with exact confidence.

The code that sanitizes tables perturbs words many times. Half of the outputs choose an event: a set
of output words that distinguishes two input words. The other half bounds its probability under both
words (Clopper and Pearson 1934), and so the privacy loss from below. An audit cannot prove a
guarantee. So it also says which larger epsilon it would have caught on the same words: next to none
in the dimensions of real embeddings, hence the small worlds.
"""
